"""What vectors of texts are worth: retrieval, similarity, pairs, classification from frozen vectors, clustering."""
