"""Answers to questions from passages."""
