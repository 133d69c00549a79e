"""Toxicity of what a model fills into prompts about groups of people, or writes after them.

larvatus audit toxicity --model runs/mine --prompts prompts.tsv --words list.txt
"""
