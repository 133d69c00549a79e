"""Comparisons of candidates, transfer to other languages, minimal pairs, word similarity."""
