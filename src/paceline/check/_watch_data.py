"""Observes which samples a rank takes: the indices behind every batch of a DataLoader.

    iter(loader)     a pass: how many samples there are, of which data set, dealt by which sampler
    next(iterator)   the indices of the batch; or the end, when the epoch has been long enough
    backward         the pass is one of training
    model in eval    the pass is one of evaluation

Two ranks have the same data set when the same few of its samples, taken with the same random numbers, have
the same bytes: then equal indices mean equal samples, also where pictures are augmented. A subset's indices
are those of the set it is of.
"""

from __future__ import annotations

import collections
import functools
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from paceline.check._recorder import Recorder
from paceline.library import Batch, JoinedWorld

_LOOKED_AT = 16  # samples that identify a data set


class DataWatch:
    """Knows the pass that is under way, so that others can say what it is for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._passes = 0
        self._current: dict[str, Any] | None = None

    def install(self) -> None:
        watch, kind = self, _BaseDataLoaderIter
        begin, advance, indices = kind.__init__, kind.__next__, kind._next_index
        restart = kind._reset

        def __init__(self: Any, loader: DataLoader[Any]) -> None:
            self._observed = collections.deque()
            begin(self, loader)
            self._pass = watch._begun(loader)

        def _reset(self: Any, loader: DataLoader[Any], first_iter: bool = False) -> None:
            if not first_iter:  # persistent processes: the iterator is used again
                self._observed.clear()
                self._pass = watch._begun(loader)
            restart(self, loader, first_iter)

        def _next_index(self: Any) -> Any:
            found = indices(self)
            self._observed.append(found)
            return found

        def __next__(self: Any) -> Any:
            watch._ask(self._pass)
            try:
                batch = advance(self)
            except StopIteration:
                watch._recorder.write("exhausted", number=self._pass["number"])
                raise
            watch._took(self._pass, self._observed.popleft() if self._observed else None)
            return batch

        for function in (__init__, _reset, _next_index, __next__):
            setattr(kind, function.__name__, function)
        JoinedWorld.shard = self._sharded(JoinedWorld.shard)  # type: ignore[method-assign]

    def _sharded(self, original: Callable[..., Iterator[Batch]]) -> Callable[..., Iterator[Batch]]:
        """Paceline's own way to deal samples out: an epoch of it can be cut, and ends with an update."""

        @functools.wraps(original)
        def shard(*args: Any, **kwargs: Any) -> Iterator[Batch]:
            current = self._begun(None)
            for batch in original(*args, **kwargs):
                self._current = current
                yield batch
                if batch.last and self._long_enough(current):
                    return

        return shard

    def trained(self) -> None:
        """A backward pass has run."""
        self._mark("training")

    def evaluated(self) -> None:
        """The model was called to evaluate."""
        self._mark("evaluation")

    def _mark(self, purpose: str) -> None:
        current = self._current
        if current is not None and current["purpose"] is None:
            current["purpose"] = purpose
            self._recorder.write("purpose", number=current["number"], purpose=purpose)

    def _begun(self, loader: DataLoader[Any] | None) -> dict[str, Any]:
        self._passes += 1
        found = {"number": self._passes, "purpose": None, "steps": self._recorder.steps, "loader": loader}
        if loader is None:
            self._recorder.write("pass", number=self._passes)
            return found
        sampler = getattr(loader, "sampler", None)
        base = _base(loader.dataset)
        self._recorder.write(
            "pass",
            number=self._passes,
            samples=_size(base),
            chosen=_size(loader.dataset),
            identity=_identity(base),
            subset=_subset(loader.dataset),
            batches=_size(loader),
            drop_last=bool(loader.drop_last),
            sampler=type(sampler).__name__,
            set_epoch=hasattr(sampler, "set_epoch"),
        )
        return found

    def _ask(self, current: dict[str, Any]) -> None:
        """End a pass of training that was long enough."""
        self._current = current
        if self._long_enough(current):
            raise StopIteration

    def _long_enough(self, current: dict[str, Any]) -> bool:
        made = self._recorder.steps - current["steps"]
        return current["purpose"] == "training" and self._recorder.epoch_is_long_enough(made)

    def _took(self, current: dict[str, Any], indices: Any) -> None:
        if indices is None or (current["purpose"] == "training" and not self._recorder.watching):
            return
        chosen = indices if isinstance(indices, list | tuple) else [indices]
        if all(isinstance(index, int | np.integer) for index in chosen):
            mapped = [_index(current["loader"].dataset, int(index)) for index in chosen]
            self._recorder.write("batch", number=current["number"], indices=mapped)


def _base(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _index(dataset: Any, index: int) -> int:
    while isinstance(dataset, Subset):
        index, dataset = int(dataset.indices[index]), dataset.dataset
    return index


def _subset(dataset: Any) -> int:
    """A number for the choice that a subset makes; 0 where nothing is chosen."""
    if not isinstance(dataset, Subset):
        return 0
    chosen = [_index(dataset, place) for place in range(len(dataset.indices))]
    return zlib.crc32(np.array(chosen, dtype=np.int64).tobytes())


def _size(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _identity(dataset: Any) -> int | None:
    """The same number on two ranks with the same data set; None where nothing can be looked at."""
    size = _size(dataset)
    if not size or isinstance(dataset, IterableDataset):
        return None
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            places = sorted({size * k // _LOOKED_AT for k in range(_LOOKED_AT)})
            return zlib.crc32(b"".join(_bytes([dataset[place] for place in places])), size)
    except Exception:  # the script's own code: whatever it raises, the script itself will show
        return None
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _bytes(thing: Any) -> Iterator[bytes]:
    if isinstance(thing, Tensor):
        yield thing.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(thing, dict):
        yield from _bytes(list(thing.values()))
    elif isinstance(thing, Sequence) and not isinstance(thing, str | bytes):
        for each in thing:
            yield from _bytes(each)
    elif isinstance(thing, np.ndarray):
        yield thing.tobytes()
    else:
        yield repr(thing).encode()
