"""Ways of combining one tensor over all ranks. One file a collective; `_base.py` holds the seam."""

from paceline.comm.collectives._base import OPERATIONS, Collective, Done, Operation, Pending

__all__ = ["OPERATIONS", "Collective", "Done", "Operation", "Pending"]
