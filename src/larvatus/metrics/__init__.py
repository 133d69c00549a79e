"""Scores of predictions and of vectors: pure functions of arrays, no torch."""
