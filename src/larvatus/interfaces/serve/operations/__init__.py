"""The operations of a server: one file per kind; `registry.py` lists them."""
