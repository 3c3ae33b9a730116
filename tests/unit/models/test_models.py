"""Every model has exactly the layers of its definition, learns in all of them, and bears an empty batch."""

import pytest
import torch
from torch import nn

from paceline.registry import MODELS

NATIVE = {  # the shape, the classes and the parameters counted by hand
    "mnist_cnn": ((1, 28, 28), 10, (25 + 1) * 16 + (16 * 25 + 1) * 64 + (64 + 1) * 32 + (32 + 1) * 10),
    "mnist_cnn_small": ((1, 28, 28), 10, (25 + 1) * 16 + (16 * 25 + 1) * 64 + (1600 + 1) * 10),
    "svhn_lenet": ((3, 32, 32), 10, (75 + 1) * 6 + (150 + 1) * 16 + (784 + 1) * 64 + (64 + 1) * 10),
    "cifar_cnn": ((3, 32, 32), 100, (27 + 1) * 32 + (288 + 1) * 32 + (6272 + 1) * 128 + (128 + 1) * 100),
    "resnet18": ((3, 32, 32), 10, 11_173_962),
    "mlp": ((1, 28, 28), 10, (784 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 10),
}
LAYERS = {  # outputs of the layers that carry parameters or change the shape, for two images
    "mnist_cnn": [
        "Conv2d 16x26x26",
        "MaxPool2d 16x14x14",
        "Conv2d 64x10x10",
        "MaxPool2d 64x5x5",
        "MaxPool2d 64x1x1",
        "Linear 32",
        "Linear 10",
    ],
    "mnist_cnn_small": [
        "Conv2d 16x26x26",
        "MaxPool2d 16x14x14",
        "Conv2d 64x10x10",
        "MaxPool2d 64x5x5",
        "Linear 10",
    ],
    "svhn_lenet": [
        "Conv2d 6x28x28",
        "MaxPool2d 6x14x14",
        "Conv2d 16x14x14",
        "MaxPool2d 16x7x7",
        "Linear 64",
        "Linear 10",
    ],
    "cifar_cnn": [
        "Conv2d 32x30x30",
        "Conv2d 32x28x28",
        "MaxPool2d 32x14x14",
        "Linear 128",
        "BatchNorm1d 128",
        "Linear 100",
    ],
}
SMALLEST = {"mnist_cnn": 28, "mnist_cnn_small": 12, "svhn_lenet": 8, "cifar_cnn": 6, "resnet18": 8}

every_model = pytest.mark.parametrize("name", MODELS.names())


def make(name: str, seed: int = 0) -> nn.Module:
    shape, classes, _ = NATIVE[name]
    torch.manual_seed(seed)
    return MODELS.make(name, shape, classes)


def images(name: str, count: int) -> torch.Tensor:
    return torch.randn(count, *NATIVE[name][0], generator=torch.Generator().manual_seed(7))


def test_every_model_of_the_folder_is_tested():
    assert sorted(NATIVE) == MODELS.names()


@every_model
def test_parameter_count(name):
    assert sum(p.numel() for p in make(name).parameters()) == NATIVE[name][2]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_the_definition(name):
    seen = []
    model = make(name)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.Linear | nn.BatchNorm1d):
            layer.register_forward_hook(
                lambda layer, _, out: seen.append(
                    f"{type(layer).__name__} {'x'.join(str(n) for n in out.shape[1:])}"
                )
            )
    model(images(name, 2))
    assert seen == LAYERS[name]


def test_resnet18_stages():
    shapes = []
    model = make("resnet18").eval()
    for layer in model:
        if type(layer).__name__ == "BasicBlock":
            layer.register_forward_hook(lambda _layer, _, out: shapes.append(tuple(out.shape[1:])))
    model(images("resnet18", 1))
    stages = [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert shapes == [stage for stage in stages for _ in range(2)]
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 1 + 16 + 3  # stem, blocks, shortcuts where the shape changes
    assert not any(isinstance(layer, nn.MaxPool2d) for layer in model.modules())


def test_dropout_rates():
    def rates(name: str, **options: float) -> list[float]:
        model = MODELS.make(name, *NATIVE[name][:2], options=options)
        return [layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)]

    assert rates("mnist_cnn") == [0.5]
    assert rates("cifar_cnn") == [0.25, 0.5]
    assert rates("mnist_cnn", dropout=0.0) == [0.0]
    assert rates("cifar_cnn", dropout=0.0) == [0.0, 0.0]


def test_cifar_cnn_norm_has_no_affine():
    norms = [layer for layer in make("cifar_cnn").modules() if isinstance(layer, nn.BatchNorm1d)]
    assert [(norm.num_features, norm.affine) for norm in norms] == [(128, False)]


@every_model
def test_logits_and_gradients(name):
    model = make(name)
    logits = model(images(name, 4))
    assert logits.shape == (4, NATIVE[name][1])
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@every_model
def test_an_empty_batch_gives_zero_gradients_and_leaves_the_statistics_alone(name):
    """A rank may be dealt no sample in the last, short step and still has to take part in it."""
    model = make(name).train()
    model(images(name, 8))  # statistics that an update would move
    before = {key: value.clone() for key, value in model.named_buffers() if "running" in key}
    logits = model(images(name, 0))
    assert logits.shape == (0, NATIVE[name][1])
    nn.functional.cross_entropy(logits, torch.zeros(0, dtype=torch.int64), reduction="sum").backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert not parameter.grad.any(), key
    after = dict(model.named_buffers())
    for key, value in before.items():
        assert torch.equal(after[key], value), key


@every_model
def test_the_seed_decides_the_parameters_and_the_output(name):
    first, again, other = make(name, seed=3), make(name, seed=3), make(name, seed=4)
    batch = images(name, 2)
    assert torch.equal(first.eval()(batch), again.eval()(batch))
    assert not torch.equal(first(batch), other.eval()(batch))


@every_model
def test_channels_and_classes_come_from_the_arguments(name):
    model = MODELS.make(name, (2, 28, 28), 7).eval()
    assert model(torch.zeros(3, 2, 28, 28)).shape == (3, 7)


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest_image(name):
    side = SMALLEST[name]
    model = MODELS.make(name, (1, side, side + 5), 10).eval()
    assert model(torch.zeros(1, 1, side, side + 5)).shape == (1, 10)
    with pytest.raises(ValueError, match=f"{name} needs images of at least {side}x{side} pixels, not"):
        MODELS.make(name, (1, side + 5, side - 1), 10)


@pytest.mark.parametrize("side", range(28, 41))
def test_any_larger_image(side):
    for name in ("mnist_cnn", "mnist_cnn_small", "svhn_lenet", "cifar_cnn"):
        assert MODELS.make(name, (1, side, 40), 3).eval()(torch.zeros(1, 1, side, 40)).shape == (1, 3), name


def test_mlp_options():
    def widths(model: nn.Module) -> list[int]:
        return [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]

    assert widths(MODELS.make("mlp", (1, 8, 8), 10, options={"hidden": 32, "depth": 3})) == [32, 32, 32, 10]
    assert widths(MODELS.make("mlp", (1, 8, 8), 10, options={"depth": 0})) == [10]
    with pytest.raises(ValueError, match="hidden >= 1"):
        MODELS.make("mlp", (1, 8, 8), 10, options={"hidden": 0})


@pytest.mark.parametrize("name, side", [("cifar_cnn", 32), ("resnet18", 8)])
def test_one_training_sample_has_no_variance(name, side):
    """Said in both modules: torch itself refuses, rather than write NaN into the statistics."""
    model = MODELS.make(name, (3, side, side), 10).train()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model(torch.zeros(1, 3, side, side))
