"""What a model gives away of its training text: planted secrets, membership of documents, names and numbers.

larvatus audit leaks --model runs/mine --canaries runs/mine/corpus --members in.jsonl --held-out out.jsonl
"""
