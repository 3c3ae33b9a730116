"""A small convolutional net for 28x28 digits whose last pool leaves one value a channel.

    1 x 28 x 28   conv k5 pad 1, ReLU      ->  16 x 26 x 26
                  max-pool 2 pad 1         ->  16 x 14 x 14
                  conv k5, ReLU            ->  64 x 10 x 10
                  max-pool 2, dropout      ->  64 x  5 x  5
                  max-pool 5 stride 1      ->  64 x  1 x  1
                  fc, ReLU                 ->  32
                  fc                       ->  classes

Cost at 1x28x28 and 10 classes: 28,490 parameters; 5.7 MFLOP forward per image (a multiply-add is two).
Larger images widen the first fully connected layer only.
"""

from __future__ import annotations

from torch import nn


class MnistCnn(nn.Sequential):
    """`shape` is (channels, height, width); `dropout` 0 makes runs comparable to the last bit."""

    def __init__(self, shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> None:
        channels, height, width = shape
        if min(height, width) < 28:
            raise ValueError(f"mnist_cnn needs images of at least 28x28 pixels, not {height}x{width}")
        super().__init__(
            nn.Conv2d(channels, 16, kernel_size=5, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, padding=1),
            nn.Conv2d(16, 64, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.MaxPool2d(5, stride=1),
            nn.Flatten(1),
            nn.Linear(64 * _side(height) * _side(width), 32),
            nn.ReLU(),
            nn.Linear(32, classes),
        )


def _side(pixels: int) -> int:
    """Height or width after the last pool: 1 for 28."""
    after_first_pool = (pixels - 2) // 2 + 1
    return (after_first_pool - 4) // 2 - 4
