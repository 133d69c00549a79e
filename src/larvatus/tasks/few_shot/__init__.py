"""Few-shot learning: sampled examples, PET, and prompting compared with plain fine-tuning."""
