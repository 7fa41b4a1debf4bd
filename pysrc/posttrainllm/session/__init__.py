"""What a page or a command may ask for: typed requests, typed events, one loop. The same object in a worker and natively."""

from .core import Session
from .host import Host

__all__ = ["Host", "Session"]
