"""Derivatives of predictions by training targets, for models without exact weights."""

from axil.jacobian.explainer import JacobianExplainer

__all__ = ["JacobianExplainer"]
