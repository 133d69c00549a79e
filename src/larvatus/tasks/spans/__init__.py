"""Spans of words, nested ones too, and relations between them (chapter §11.5.2)."""
