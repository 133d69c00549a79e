"""Bias: associations with groups of people, and their effect on decisions."""
