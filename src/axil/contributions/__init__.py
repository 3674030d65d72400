"""Contributions of training rows to the scores of boosted trees with any loss, and derivatives of these scores."""
