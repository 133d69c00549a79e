"""How fast this machine is with these models: its matrix ceiling, training, embedding, loading, memory, growth, peers."""
