"""Text in, tokens out: vocabularies, the word aligner, sentences, readers of text. No torch.

`vocabularies` trains, `tokenizer.py` encodes, `align.py` maps characters ↔ words ↔ subwords (what a word is:
`words.py`), `words.py` splits, `readers.py` reads, `embedded.py` is Python's own documentation.
"""
