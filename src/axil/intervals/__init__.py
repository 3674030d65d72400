"""Intervals: how far targets are from predictions, calibrated; `Explainer.calibrate` makes a `Predictive`."""

from axil.intervals.predictive import Predictive

__all__ = ["Predictive"]
