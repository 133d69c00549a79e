"""Sparse features of one layer's states, and how they compare with those of random weights."""
