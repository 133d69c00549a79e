"""A client of `larvatus serve` that needs the standard library, msgspec and NumPy, but not torch.

from larvatus.interfaces.client import Client
Client("http://127.0.0.1:8311").fill("The [MASK] of the river was wide.")["fills"][0]["token"]
"""

from larvatus.interfaces.client.answers import ServerError
from larvatus.interfaces.client.client import Client

__all__ = ["Client", "ServerError"]
