"""scikit-learn: its models, samplers and refusals."""
