"""Labelled examples: records, readers of files, GLUE, checks, splits. No torch."""
