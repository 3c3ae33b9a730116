"""Ways of moving bytes between two ranks. One file a link; `_base.py` holds the seam."""

from paceline.comm.links._base import Link, Message
from paceline.comm.links._counted import Counted

__all__ = ["Counted", "Link", "Message"]
