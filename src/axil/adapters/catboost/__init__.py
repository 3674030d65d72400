"""CatBoost: its models and refusals."""
