"""Derivatives of predictions by training targets at an optimum.

The implicit function theorem gives them.
"""
