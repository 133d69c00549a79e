"""How fast this machine is: matrix ceiling, training, embedding, loading, memory; how that grows; peers beside it."""
