"""The English model that comes with Larvatus: a model directory in `model/`, where this copy has one. No code.

`larvatus.load()` and commands without `--model` look for it here. It can be removed, or left out of a wheel: Larvatus
works without, and says in a line what is missing. `packages/package_english.py` makes the directory from a trained run.
"""
