"""Sentence vectors: pairs, triplets, scored pairs, groups or plain text become a sentence encoder."""
