"""Looking inside a model: what its attention heads look at, and which of them it needs."""
