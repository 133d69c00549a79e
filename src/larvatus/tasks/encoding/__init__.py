"""Examples as the model reads them: words, alignment, windows."""
