"""Losses of sentence vectors: what is minimised when a model learns to embed.

    loss = MultipleNegatives(scale=20.0)
    loss(x_TD, targets)                   # the mean loss of a whole step, from the vectors of its texts

`losses.py` has the interface of a loss, and the losses of vectors that are compared by their cosines;
`late_interaction.py` applies them to token vectors compared by MaxSim, `splade.py` to sparse vectors, with a
regulariser.
"""
