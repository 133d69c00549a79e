"""Text, labelled examples, pretraining corpora and their corruption; no torch below the corpus loader."""
