"""The model directory: save, load, manifest, Hugging Face layouts, model card."""
