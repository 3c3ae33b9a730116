"""A LeNet for the 32x32 colour digits of SVHN.

    3 x 32 x 32   conv k5, ReLU            ->   6 x 28 x 28
                  max-pool 2               ->   6 x 14 x 14
                  conv k5 pad 2, ReLU      ->  16 x 14 x 14
                  max-pool 2               ->  16 x  7 x  7  = 784
                  fc, ReLU                 ->  64
                  fc                       ->  classes

Cost at 3x32x32 and 10 classes: 53,762 parameters; 1.7 MFLOP forward per image (a multiply-add is two).
Another image size changes the inputs of the first fully connected layer only.
"""

from __future__ import annotations

from torch import nn


class SvhnLenet(nn.Sequential):
    """`shape` is (channels, height, width)."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        channels, height, width = shape
        if min(height, width) < 8:
            raise ValueError(f"svhn_lenet needs images of at least 8x8 pixels, not {height}x{width}")
        super().__init__(
            nn.Conv2d(channels, 6, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(1),
            nn.Linear(16 * _side(height) * _side(width), 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )


def _side(pixels: int) -> int:
    """Height or width after the second pool: 7 for 32."""
    return (pixels - 4) // 4
