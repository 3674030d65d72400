"""Questions to a proven model."""
