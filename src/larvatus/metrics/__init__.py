"""Scores of answers against truth: pure functions."""
