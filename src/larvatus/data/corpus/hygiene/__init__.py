"""Corpus hygiene: duplicates, overlap with evaluation sets, languages, personal data, outliers; checked or filtered."""
