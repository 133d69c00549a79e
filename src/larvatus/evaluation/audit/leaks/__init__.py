"""What a model gives away of its training text: secrets, membership, names and numbers, text that it writes verbatim.

larvatus audit leaks --model runs/mine --canaries runs/mine/corpus --members in.jsonl --held-out out.jsonl
"""
