"""Self-attention: which token sees which (`sight`), where tokens lie (`layout`), and how it is computed on a device."""
