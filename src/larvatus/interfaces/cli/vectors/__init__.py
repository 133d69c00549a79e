"""Commands about vectors of words in context."""
