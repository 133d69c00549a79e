"""Commands about text: vocabularies and corpora."""
