"""Commands that write."""
