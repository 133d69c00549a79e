"""What a fine-tuned model is worth: scores with intervals, comparisons, pictures."""
