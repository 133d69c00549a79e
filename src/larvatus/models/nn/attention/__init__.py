"""Self-attention: attention masks, the layout of tokens in a batch, and the computation on each device."""
