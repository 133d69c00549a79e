"""Words in context: vectors of tokens, words, spans, sentences and documents."""
