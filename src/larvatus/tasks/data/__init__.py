"""Labelled data: records, readers of every format, GLUE by name, and the check before training. No torch."""
