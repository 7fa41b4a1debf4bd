"""trace → Graph, differentiate → Graph, place → Plan, record → Tape."""

from .arena import Plan, place
from .differentiate import differentiate
from .graph import REGIONS, Graph, Node, Value
from .tape import Tape, decode, record

__all__ = ["Graph", "Node", "Plan", "REGIONS", "Tape", "Value", "decode", "differentiate", "place", "record"]
