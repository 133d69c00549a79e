"""Encoding of examples: words, alignment, windows."""
