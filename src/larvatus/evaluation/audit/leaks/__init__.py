"""Leaks of training text: planted secrets, membership, names and numbers, verbatim text.

larvatus audit leaks --model runs/mine --canaries runs/mine/corpus --members in.jsonl --held-out out.jsonl
"""
