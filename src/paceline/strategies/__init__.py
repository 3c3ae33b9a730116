"""How replicas learn together. One file a strategy; `_base.py` holds the seam."""

from paceline.strategies._base import Strategy

__all__ = ["Strategy"]
