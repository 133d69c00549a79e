"""Commands that train and compare models."""
