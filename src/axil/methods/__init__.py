"""The public methods of an explainer, one module each."""
