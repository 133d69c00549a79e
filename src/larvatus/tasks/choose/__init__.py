"""Choosing the right ending of several: multiple choice."""
