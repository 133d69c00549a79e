"""Fine-tuning: classify texts and pairs, tag words."""
