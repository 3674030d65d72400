"""Write a folder of small pages, one per prediction.

They are in words for people who know nothing about models. ``content`` collects the numbers of a
batch of pages, ``case_page`` and ``wording`` turn them into text, and ``folder`` writes the files
and the index that finds them.
"""
