"""Probes: what each layer of an encoder knows, next to controls."""
