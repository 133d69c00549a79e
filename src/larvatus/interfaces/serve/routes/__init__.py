"""The addresses of a server: each file adds some to an application."""
