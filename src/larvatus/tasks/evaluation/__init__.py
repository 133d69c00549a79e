"""Evaluation of fine-tuned models: scores with intervals, comparisons, plots."""
