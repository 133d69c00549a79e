"""An evaluation suite: many measurements of one model, each through the house's own functions, in one table."""
