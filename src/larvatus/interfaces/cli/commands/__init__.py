"""The commands, a module for each; `cli/command_list.py` lists them."""
