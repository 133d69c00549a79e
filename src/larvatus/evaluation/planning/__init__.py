"""A plan of a pretraining run from its text: settings, expected loss, time, and what more text would give."""
