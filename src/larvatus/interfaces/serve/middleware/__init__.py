"""Middleware around the routes: metrics, draining, keys, hosts, body limits, disconnects (`stack.py` has the order)."""
