"""Commands about labelled examples: fine-tune, predict, evaluate."""
