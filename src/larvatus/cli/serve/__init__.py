"""Commands that serve models."""
