"""Word senses: WordNet, sense vectors from tagged text, and the nearest sense of a word in its context."""
