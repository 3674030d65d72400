"""Records of fitted tree ensembles: losses, leaf rules, and one fit."""
