"""Tagging words."""
