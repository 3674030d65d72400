"""Pushes: what each training row's own gradients put into the scores of boosted trees, for any loss; and their derivatives."""
