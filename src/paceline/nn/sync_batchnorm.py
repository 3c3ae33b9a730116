"""SyncBatchNorm: batch norm whose statistics are those of the samples of all ranks, on CPUs too.

    forward    Σx, Σx², count of my samples ─▶ one message ─▶ mean, variance of all ─▶ y
    backward   Σdy, Σdy·(x - mean) of mine  ─▶ one message ─▶ dx
    evaluation running statistics, nothing is sent

So p ranks with a p-th of a batch each compute what torch's BatchNorm computes on the whole batch: outputs,
input gradients, running statistics. The gradients of weight and bias are this rank's own sums, as torch's
are: whoever averages gradients (ddp) averages these too. Ranks may have different numbers of samples, or
none at all.

Cost: a message of 2·channels + 1 float64 in forward, and of the same length in backward; three float32 a
channel are kept for backward beside the input. Every rank must make the same passes: one that leaves out a
backward, or takes another number of micro-batches, leaves the others waiting until their deadline.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.errors import PacelineError
from paceline.nn import _arithmetic, _kernels
from paceline.nn._messages import Group, Messages


class SyncBatchNorm(_BatchNorm):
    """Constructed as torch's, and of the same state; `process_group` may also be a collective of ours."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Group = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        if not bias:
            self.register_parameter("bias", None)  # older torch cannot leave it out by itself
        self._messages = Messages(process_group)

    @property
    def process_group(self) -> Group:
        """Whom it talks with: a torch process group, a collective, or None for torch's default group."""
        return self._messages.group

    @process_group.setter
    def process_group(self, group: Group) -> None:
        self._messages = Messages(group)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training or not self._messages.anybody():
            return self._alone(input)
        running, momentum = None, 0.0
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            running, momentum = (self.running_mean, self.running_var), self._share_of_new()
        call = _Call(self._messages, running, self.eps, momentum)
        return cast(Tensor, _Synchronised.apply(input, self.weight, self.bias, call))

    def _share_of_new(self) -> float:
        """How much of the running statistics the new ones become."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        if self.momentum is None:  # the mean of all batches so far
            return 1.0 / float(self.num_batches_tracked)
        return self.momentum

    def _alone(self, input: Tensor) -> Tensor:
        """As torch's own; with statistics of this batch where it trains, or keeps no running ones."""
        tracked = self.training and self.track_running_stats and self.num_batches_tracked is not None
        momentum = self._share_of_new() if tracked else self.momentum or 0.0
        keeps = self.running_mean is not None and self.running_var is not None
        use = keeps and (not self.training or self.track_running_stats)
        return nn.functional.batch_norm(
            input,
            self.running_mean if use else None,
            self.running_var if use else None,
            self.weight,
            self.bias,
            self.training or not keeps,
            momentum,
            self.eps,
        )

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm({self.num_features}) takes tensors of (samples, {self.num_features}, …), "
                f"got {tuple(input.shape)}"
            )

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Group = None) -> nn.Module:
        """`module` with every BatchNorm in it replaced; parameters and buffers are the same objects."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                device="meta",
            )
            converted._parameters = dict(module._parameters)
            converted._buffers = dict(module._buffers)
            converted.training = module.training
        for name, child in module.named_children():
            new = cls.convert_sync_batchnorm(child, process_group)
            if new is not child:
                converted.add_module(name, new)
        return converted


def convert_sync_batchnorm(module: nn.Module, process_group: Group = None) -> nn.Module:
    """Every BatchNorm in `module` as a SyncBatchNorm over `process_group`, a collective or a group."""
    return SyncBatchNorm.convert_sync_batchnorm(module, process_group)


class _Call(NamedTuple):
    """What a forward pass is given beside tensors."""

    messages: Messages
    running: tuple[Tensor, Tensor] | None
    eps: float
    momentum: float


class _Synchronised(torch.autograd.Function):
    """The two passes, each with its one message in the middle."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, call: _Call) -> Tensor:
        in_c = _kernels.takes(input, weight, bias, *(call.running or ()))
        message = call.messages.buffer(2 * input.shape[1] + 1, input.device)
        if in_c:
            input, ctx.shape = _kernels.dense(input)
            _kernels.statistics(input, message, ctx.shape)
        else:
            _arithmetic.statistics(input, message)
        call.messages.sum_(message)
        count = _checked(message[-1], input)
        settings = (weight, bias, call.running, call.eps, call.momentum)
        if input.is_cpu and count == 0:  # of all ranks: nothing to normalise, nothing to learn from
            y, kept = input.clone(), torch.zeros(3, input.shape[1], device=input.device)
        elif in_c:
            y, kept = _kernels.normalise(input, message, ctx.shape, *settings)
        else:
            y, kept = _arithmetic.normalise(input, message, count, *settings)
        ctx.save_for_backward(input, weight, kept)
        ctx.in_c, ctx.messages, ctx.count = in_c, call.messages, count
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise PacelineError(
                "SyncBatchNorm has no second derivative, and backward was called with create_graph=True; "
                "use BatchNorm where gradients of gradients are needed"
            )
        input, weight, kept = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        message = ctx.messages.buffer(2 * input.shape[1] + 1, input.device)
        if ctx.in_c:
            dy = _kernels.like(dy, input)
            own = _kernels.sums(dy, input, kept, message, ctx.shape, wanted[1:3])
        else:
            own = _arithmetic.sums(dy, input, kept, message, weight, wanted[1:3])
        if not wanted[0]:
            return None, *own, None
        ctx.messages.sum_(message)
        if ctx.in_c:
            dx = _kernels.gradient(dy, input, message, kept, ctx.shape, weight, ctx.count)
        else:
            dx = _arithmetic.gradient(dy, input, message, kept, weight, ctx.count)
        return dx, *own, None


def _checked(count: Tensor, input: Tensor) -> _arithmetic.Count:
    """The samples of all ranks; on a GPU not read, because reading waits for everything before."""
    if not count.is_cpu:
        return count.clone()
    number = count.item()
    if number == 1:
        raise ValueError(
            f"one value per channel over all ranks has no variance; this rank's input is {tuple(input.shape)}"
        )
    return number
