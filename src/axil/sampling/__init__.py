"""Replays of how the libraries draw the rows that each tree is fitted on: pure functions from parameters to bags."""
