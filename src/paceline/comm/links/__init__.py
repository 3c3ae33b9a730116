"""Ways of moving bytes between two ranks. One file a link; `_base.py` holds the seam."""

from paceline.comm.links._base import Link, Message
from paceline.comm.links._counted import Counted
from paceline.comm.links._slowed import make_link

__all__ = ["Counted", "Link", "Message", "make_link"]
