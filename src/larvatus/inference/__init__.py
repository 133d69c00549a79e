"""What a loaded model does: fill blanks, embed, search, find senses, show attention; `Model` itself."""
