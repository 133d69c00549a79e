"""Several tasks on one encoder: trained together, predicted in one pass of the encoder."""
