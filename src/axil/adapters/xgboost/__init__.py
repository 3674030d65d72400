"""XGBoost: its models, samplers and refusals."""
