"""Pretraining and fine-tuning: step, optimizers, schedule, ranks, loop, checkpoints, settings, reporter."""
