"""Training, whatever is learnt: step, optimizers, schedule, ranks, loop, checkpoints, settings, reporter."""
