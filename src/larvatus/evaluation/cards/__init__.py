"""Claims of model cards: making them from figures, and working them out again."""
