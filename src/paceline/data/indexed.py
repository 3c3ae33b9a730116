"""Whatever somebody's samples are kept in, as batches by index.

    a part of one of our sets     normalised pictures and labels
    tensors of equal length       their rows: (images, labels), or a TensorDataset
    a DataLoader                  its data set, through its own collate_fn and worker processes
    any map-style data set        the same, with torch's defaults

The first two gather rows in one go; the others build each sample and collate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from paceline.data.resident import Part
from paceline.data.shard import Indices
from paceline.errors import ConfigError

_LOADER = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")


class Indexed(ABC):
    """Samples that have numbers."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(self, lists: Iterable[Indices]) -> Iterator[tuple[Any, ...]]:
        """One batch for each list of indices."""


def indexed(data: Any) -> Indexed:
    """`data` by index; what cannot be shared out that way is refused."""
    if isinstance(data, Indexed):
        return data
    if isinstance(data, Part):
        return _Pictures(data)
    if isinstance(data, TensorDataset):
        return _Rows(data.tensors)
    if isinstance(data, Tensor):
        return _Rows([data])
    if isinstance(data, tuple | list) and data and all(isinstance(field, Tensor) for field in data):
        return _Rows(data)
    loader = data if isinstance(data, DataLoader) else None
    dataset = data if loader is None else loader.dataset
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise ConfigError(
            f"{type(dataset).__name__} has no samples by number, so it cannot be dealt out exactly once; "
            "give tensors, a data set with __getitem__ and __len__, or a DataLoader of one"
        )
    return _Loaded(dataset, loader)


class _Pictures(Indexed):
    def __init__(self, part: Part) -> None:
        self._part = part

    def __len__(self) -> int:
        return len(self._part)

    def batches(self, lists: Iterable[Indices]) -> Iterator[tuple[Any, ...]]:
        return (self._part.batch(some) for some in lists)


class _Rows(Indexed):
    def __init__(self, fields: Sequence[Tensor]) -> None:
        lengths = sorted({len(field) for field in fields})
        if len(lengths) != 1:
            raise ConfigError(f"the tensors have {lengths} rows; they must have equally many")
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields[0])

    def batches(self, lists: Iterable[Indices]) -> Iterator[tuple[Any, ...]]:
        for some in lists:
            at = torch.from_numpy(np.asarray(some, np.int64))
            yield tuple(field.index_select(0, at) for field in self._fields)


class _Loaded(Indexed):
    def __init__(self, dataset: Any, loader: DataLoader[Any] | None) -> None:
        self._dataset = dataset
        self._settings: dict[str, Any] = {}
        if loader is not None:
            self._settings = {name: getattr(loader, name) for name in _LOADER}
            self._settings["collate_fn"] = loader.collate_fn

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(self, lists: Iterable[Indices]) -> Iterator[tuple[Any, ...]]:
        numbers = [some.tolist() for some in lists]
        for found in DataLoader(self._dataset, batch_sampler=numbers, **self._settings):
            yield tuple(found) if isinstance(found, tuple | list) else (found,)
