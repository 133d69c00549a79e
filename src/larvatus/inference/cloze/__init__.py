"""Uses of a language-modelling head: fill blanks, score texts, score words in context."""
