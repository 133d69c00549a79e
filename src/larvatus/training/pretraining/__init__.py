"""Pretraining: preparing text, adapting a model, budgets, the run, held-out evaluation."""
