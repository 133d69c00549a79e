"""Bias: what a model associates with groups of people, and what its decisions make of them."""
