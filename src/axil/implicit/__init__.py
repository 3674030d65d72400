"""Derivatives of predictions by training targets at an optimum, by the implicit function theorem."""
