"""Tables, pages and saved files."""
