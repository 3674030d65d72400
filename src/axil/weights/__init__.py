"""The weights K of a structure: boosting, forests, smoothers, and what follows from them."""
