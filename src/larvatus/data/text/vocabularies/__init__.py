"""Kinds of vocabularies, one file each: its config, its training, and its normaliser, template and decoder."""
