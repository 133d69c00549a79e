"""Reranking: a query and a passage, read together, get a score of relevance (cross-encoders)."""
