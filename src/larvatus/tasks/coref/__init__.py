"""Coreference: mentions of a document, clustered by what they refer to."""
