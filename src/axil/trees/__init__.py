"""What libraries of tree ensembles fit: losses, leaf rules, and the record of one fit."""
