"""The studio: a page next to the routes of a server, to try models, inspect them, fine-tune them and watch runs."""
