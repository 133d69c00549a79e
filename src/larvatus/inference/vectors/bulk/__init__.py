"""Vectors of whole corpora: parts that resume, tables and vector files."""
