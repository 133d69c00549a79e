"""What a model learnt that it should not show: bias, leaks, toxicity (the chapter's section on harms).

larvatus audit bias --pairs crows_pairs.csv --model runs/mine
"""
