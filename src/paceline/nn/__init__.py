"""Layers whose ranks compute together.

sync_batchnorm.py   SyncBatchNorm and convert_sync_batchnorm: batch statistics over all ranks
_messages.py        one flat message, summed over the ranks of a collective or of a process group
_kernels.py         its arithmetic in C (_batch_norm.c), for float32 on the CPU
_arithmetic.py      the same in torch's operations, for every type and device
"""

from paceline.nn.sync_batchnorm import SyncBatchNorm, convert_sync_batchnorm

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]
