"""The training engine and masked pretraining on top of it."""
