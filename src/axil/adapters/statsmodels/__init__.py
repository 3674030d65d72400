"""statsmodels: least squares, ordinary, weighted and generalised."""
