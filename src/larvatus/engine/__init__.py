"""Training: the loop, optimizer, schedule, precision, distribution, checkpoints, guards, signals, monitor."""
