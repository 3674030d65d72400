"""What can be asked of a proven model."""
