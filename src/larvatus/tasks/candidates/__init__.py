"""Small data: candidates for a classifier, compared by cross-validation within a time budget."""
