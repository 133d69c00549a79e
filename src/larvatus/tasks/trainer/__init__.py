"""Fine-tuning: settings, the loop, runs that resume, saving."""
