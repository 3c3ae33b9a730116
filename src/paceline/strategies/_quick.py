"""An optimizer's step without torch's Python around it, where that is known to change nothing.

    SGD.step   profiler range ─ grad mode twice ─ hooks ─ lists ─ grouping by type ─▶ _fused_sgd_
    quick      checks ─ lists ───────────────────────────────────────────────────▶ _fused_sgd_

The same kernel on the same tensors with the same state, so the same bits. After a forward and a backward have
emptied the caches, torch's way takes 64 µs for one flat parameter and the kernel a tenth of it: where a
strategy's whole communication takes less than that, it is worth a file. Everything that could notice the
difference (hooks, a scheduler that counts steps, gradient scaling, groups that change) gets torch's own step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim import optimizer as _torchs


def quick_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """What makes one update: `optimizer.step()`, or the same in less time."""
    if type(optimizer) is torch.optim.SGD:
        return _QuickSgd(optimizer)
    return lambda: _own(optimizer)


def _own(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


class _QuickSgd:
    """Plain torch.optim.SGD, fused, in groups of one type each."""

    def __init__(self, optimizer: torch.optim.SGD) -> None:
        self._optimizer = optimizer
        self._sizes: list[int] | None = None  # of the groups at the first step, which is torch's

    def __call__(self) -> None:
        if not (self._sizes and self._unnoticed() and self._quick()):
            self._optimizer.step()
            self._sizes = self._suited()

    def _suited(self) -> list[int] | None:
        groups = self._optimizer.param_groups
        kinds = [{(p.dtype, p.device) for p in group["params"]} for group in groups]
        fused = all(group["fused"] for group in groups) and all(len(kind) <= 1 for kind in kinds)
        return [len(group["params"]) for group in groups] if fused else None

    def _unnoticed(self) -> bool:
        """Nobody has put anything around or into the optimizer's step."""
        own = self._optimizer.__dict__
        return not (
            "step" in own
            or "grad_scale" in own
            or own["_optimizer_step_pre_hooks"]
            or own["_optimizer_step_post_hooks"]
            or _torchs._global_optimizer_pre_hooks
            or _torchs._global_optimizer_post_hooks
        )

    def _quick(self) -> bool:
        """The update; False, and none, where something is not as it was at the first step."""
        state, ready = self._optimizer.state, []
        groups = self._optimizer.param_groups
        if [len(group["params"]) for group in groups] != self._sizes:
            return False
        for group in groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            moving = [state[p].get("momentum_buffer") for p in parameters] if group["momentum"] else []
            gradients = [p.grad for p in parameters]
            if any(kept is None for kept in moving) or any(g.is_sparse for g in gradients):
                return False
            ready.append((group, parameters, gradients, moving))
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            for group, parameters, gradients, moving in ready:
                if parameters:
                    torch._fused_sgd_(
                        parameters, gradients, moving, weight_decay=group["weight_decay"],
                        momentum=group["momentum"], lr=group["lr"], dampening=group["dampening"],
                        nesterov=group["nesterov"], maximize=group["maximize"], is_first_step=False,
                    )  # fmt: skip
        finally:
            torch._C._set_grad_enabled(before)
        return True
