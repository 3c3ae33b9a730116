"""ResNet-18 in its CIFAR form: a 3x3 stem without a pool, then four stages of two basic blocks.

    3 x 32 x 32   conv k3, batch norm, ReLU        ->   64 x 32 x 32
                  stage 1: 2 blocks                ->   64 x 32 x 32
                  stage 2: 2 blocks, first strided ->  128 x 16 x 16
                  stage 3: 2 blocks, first strided ->  256 x  8 x  8
                  stage 4: 2 blocks, first strided ->  512 x  4 x  4
                  mean over the pixels, fc         ->  classes

    block   x -> conv k3, norm, ReLU, conv k3, norm -> + -> ReLU
            |__ identity, or conv k1 and norm where __|
                the shape changes

Cost at 3x32x32 and 10 classes: 11,173,962 parameters; 1,111 MFLOP forward per image (a multiply-add is two).
Any image of 8x8 pixels or more fits; at 8x8 the last stage has one pixel, so that a training batch of a
single sample has no variance there and torch refuses it.
"""

from __future__ import annotations

from torch import Tensor, nn


class Resnet18(nn.Sequential):
    """`shape` is (channels, height, width)."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        channels, height, width = shape
        if min(height, width) < 8:
            raise ValueError(f"resnet18 needs images of at least 8x8 pixels, not {height}x{width}")
        super().__init__(
            *_convolution(channels, 64, kernel=3),
            nn.ReLU(inplace=True),
            *_stage(64, 64, stride=1),
            *_stage(64, 128, stride=2),
            *_stage(128, 256, stride=2),
            *_stage(256, 512, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(1),
            nn.Linear(512, classes),
        )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(inputs, outputs, kernel=3, stride=stride),
            nn.ReLU(inplace=True),
            *_convolution(outputs, outputs, kernel=3),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(
            *([] if same else _convolution(inputs, outputs, kernel=1, stride=stride))
        )

    def forward(self, images: Tensor) -> Tensor:
        summed: Tensor = self.residual(images) + self.shortcut(images)
        return summed.relu_()


def _stage(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    return [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, stride=1)]


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size up to its stride; no bias, which the norm would subtract again."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]
