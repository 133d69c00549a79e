"""What a masked-LM head can do: fill blanks."""
