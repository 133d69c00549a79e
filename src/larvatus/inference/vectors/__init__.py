"""Contextual vectors of tokens, words, spans, sentences and documents."""
