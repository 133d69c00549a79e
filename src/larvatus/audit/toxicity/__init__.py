"""What a model puts into the blanks of prompts about groups of people, judged by a classifier or a list of words.

larvatus audit toxicity --model runs/mine --prompts prompts.tsv --words list.txt
"""
