"""Commands that fill blanks and score texts."""
