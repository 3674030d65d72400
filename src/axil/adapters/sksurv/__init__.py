"""scikit-survival's gradient boosting and survival forests."""
