"""Audits of harms: bias, leaks of training text, toxicity.

larvatus audit bias --pairs crows_pairs.csv --model runs/mine
"""
