"""Memory, threads, progress and files of the machine at hand."""
