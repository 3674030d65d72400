"""Intervals: how far targets are from predictions, calibrated; `Explainer.calibrate` makes a `Predictive`."""

from axil.questions.intervals.predictive import Predictive

__all__ = ["Predictive"]
