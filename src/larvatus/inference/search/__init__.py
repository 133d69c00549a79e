"""Search for the nearest word instances in a corpus: index, vector files, concordance."""
