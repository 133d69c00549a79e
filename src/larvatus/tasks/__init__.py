"""Fine-tuning: classify and tag texts of one's own."""
