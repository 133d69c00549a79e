"""Standardised vectors (chapter eq. 11.10 to 11.12)."""
