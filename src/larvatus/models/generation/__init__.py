"""Text generation: continue a prompt, and score continuations."""
