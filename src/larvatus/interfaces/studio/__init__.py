"""The studio: a page served beside the tasks of a model, on which it can be seen, taught and watched."""
