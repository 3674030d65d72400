"""LightGBM: its models, samplers and refusals."""
