"""Likely causes of a disagreement with the data that several libraries share."""

OTHER_ROWS = "These are not the rows and columns that the model was fitted on: other rows, or columns in another order."
OTHER_COLUMNS = "Columns were scaled or otherwise changed for the fit, or categories and missing values were encoded otherwise."
OTHER_WEIGHTS = (
    "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, or none if it had "
    "none."
)
OTHER_TARGETS = "The targets are not those of the fit, or were transformed for it (a logarithm), or are in another order."
