"""Random models of every library, each exact or refused by name."""
