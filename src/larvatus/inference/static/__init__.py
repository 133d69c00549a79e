"""Static models: one vector for each token, distilled from a sentence encoder."""
