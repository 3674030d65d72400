"""Contributions of training rows to the scores of boosted trees with any loss.

Derivatives of these scores are here too.
"""
