"""The nearest instances in a corpus: index, search, concordance."""
