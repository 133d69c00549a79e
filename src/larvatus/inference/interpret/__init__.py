"""Model analysis: isotropy of vectors, attention weights and head types, importance and pruning of heads."""
