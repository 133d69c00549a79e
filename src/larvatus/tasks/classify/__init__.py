"""Classifying texts and pairs of texts."""
