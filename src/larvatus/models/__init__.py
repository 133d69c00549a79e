"""Networks and what describes them: layers, objectives, heads, recipes, model directories, generation."""
