"""Benchmarks of this machine: matrix ceiling, training, embedding, loading, memory, scaling, and peers."""
