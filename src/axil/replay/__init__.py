"""The fit replayed on its training rows, and the proof that it is the model's own."""
