"""Training of tuned lenses, and faithfulness of explanations."""
