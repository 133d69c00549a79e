"""What a model puts into the blanks of prompts about groups of people, or writes after them, and how toxic that is.

larvatus audit toxicity --model runs/mine --prompts prompts.tsv --words list.txt
"""
