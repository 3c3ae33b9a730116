"""Ways of moving bytes between two ranks. One file a link; `_base.py` holds the seam."""

from paceline.comm.links._base import Link

__all__ = ["Link"]
