"""The fit replayed on its training rows, and the verification that it is the model's own."""
