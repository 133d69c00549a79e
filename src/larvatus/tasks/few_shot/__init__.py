"""Few examples: draws of them, PET, and what each way of prompting is worth beside plain fine-tuning."""
