"""Semantic roles: predicates, their senses and their arguments (PropBank)."""
