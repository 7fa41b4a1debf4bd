"""trace → Graph, differentiate → Graph, recompute → Graph, place → Plan, record → Tape, repeat → Tape."""

from .arena import Plan, place
from .differentiate import differentiate
from .graph import REGIONS, Graph, Node, Value
from .recompute import recompute
from .tape import Tape, decode, record, repeat

__all__ = ["Graph", "Node", "Plan", "REGIONS", "Tape", "Value", "decode", "differentiate", "place", "recompute", "record", "repeat"]
