"""The convolutions and pools of `mnist_cnn` with a single fully connected layer: the net of the Hogwild runs.

    1 x 28 x 28   conv k5 pad 1, ReLU      ->  16 x 26 x 26
                  max-pool 2 pad 1         ->  16 x 14 x 14
                  conv k5, ReLU            ->  64 x 10 x 10
                  max-pool 2               ->  64 x  5 x  5  = 1600
                  fc                       ->  classes

Cost at 1x28x28 and 10 classes: 42,090 parameters; 5.7 MFLOP forward per image (a multiply-add is two).
Another image size changes the inputs of the fully connected layer only.
"""

from __future__ import annotations

from torch import nn


class MnistCnnSmall(nn.Sequential):
    """`shape` is (channels, height, width)."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        channels, height, width = shape
        if min(height, width) < 12:
            raise ValueError(f"mnist_cnn_small needs images of at least 12x12 pixels, not {height}x{width}")
        super().__init__(
            nn.Conv2d(channels, 16, kernel_size=5, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, padding=1),
            nn.Conv2d(16, 64, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(1),
            nn.Linear(64 * _side(height) * _side(width), classes),
        )


def _side(pixels: int) -> int:
    """Height or width after the second pool: 5 for 28."""
    after_first_pool = (pixels - 2) // 2 + 1
    return (after_first_pool - 4) // 2
