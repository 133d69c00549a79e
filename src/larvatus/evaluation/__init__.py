"""Benchmark suites, and comparisons of recipes and of models."""
