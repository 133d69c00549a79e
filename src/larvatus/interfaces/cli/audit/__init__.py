"""`larvatus audit`: bias, leaks and toxicity of a model, one file for each."""
