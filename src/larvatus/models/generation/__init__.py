"""What a model that predicts the next token can do: go on with a prompt, and say how likely a continuation is."""
