"""Foundations that know nothing of models: errors, random streams, files, batches, targets, ranges, tables."""
