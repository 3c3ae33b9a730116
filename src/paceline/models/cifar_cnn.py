"""Two convolutions and a normalised hidden layer: the net in which synchronised batch norm is compared.

    3 x 32 x 32   conv k3, ReLU                     ->  32 x 30 x 30
                  conv k3, ReLU                     ->  32 x 28 x 28
                  max-pool 2, dropout (half rate)   ->  32 x 14 x 14  = 6272
                  fc                                -> 128
                  batch norm without affine, ReLU, dropout
                  fc                                -> classes

Cost at 3x32x32 and 100 classes: 825,988 parameters; 17.6 MFLOP forward per image (a multiply-add is two).
Another image size changes the inputs of the first fully connected layer only.

The batch norm is torch's own: a training batch without samples leaves its running statistics alone, a
training batch of exactly one sample has no variance and torch refuses it.
"""

from __future__ import annotations

from torch import nn


class CifarCnn(nn.Sequential):
    """`shape` is (channels, height, width); `dropout` is the second rate, the first is half of it."""

    def __init__(self, shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> None:
        channels, height, width = shape
        if min(height, width) < 6:
            raise ValueError(f"cifar_cnn needs images of at least 6x6 pixels, not {height}x{width}")
        super().__init__(
            nn.Conv2d(channels, 32, kernel_size=3),
            nn.ReLU(),
            nn.Conv2d(32, 32, kernel_size=3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout / 2),
            nn.Flatten(1),
            nn.Linear(32 * _side(height) * _side(width), 128),
            nn.BatchNorm1d(128, affine=False),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(128, classes),
        )


def _side(pixels: int) -> int:
    """Height or width after the pool: 14 for 32."""
    return (pixels - 4) // 2
