"""A folder of small pages, one per prediction, in words for people who know nothing of models.

comparables of a batch (content) -> markup (case_page), in words (wording) -> files (folder), found by an index (search)
"""
