"""Intervals: how far targets are from predictions, calibrated.

`Explainer.calibrate` makes a `Predictive`.
"""
