"""Classifying texts and pairs through a pattern with a blank."""
