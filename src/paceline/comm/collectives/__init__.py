"""Ways of combining one tensor over all ranks. One file a collective; `_base.py` holds the seam."""

from paceline.comm.collectives._base import OPERATIONS, Collective, Operation

__all__ = ["OPERATIONS", "Collective", "Operation"]
