"""Pure functions from answers to scores."""
