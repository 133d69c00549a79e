"""The version, read from the installed package."""

from importlib.metadata import version

VERSION = version("larvatus")
