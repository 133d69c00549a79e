"""Kinds of vocabularies, one file each: its config, how it is learnt, and its normaliser, template and decoder."""
