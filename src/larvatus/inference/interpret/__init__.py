"""Looking inside a model: how its vectors lie in space, what its attention heads look at, which of them it needs."""
