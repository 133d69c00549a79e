"""What a server can be asked to do: a file for each kind, and `registry.py`, which lists them."""
