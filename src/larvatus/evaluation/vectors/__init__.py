"""Quality of text vectors: retrieval, similarity, pairs, classification from frozen vectors, clustering."""
