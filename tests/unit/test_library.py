"""A loop of one's own: any number of ranks makes the updates of one process, and measures exactly."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import paceline as pl
from cases.library import samples
from cases.strategies import model, sgd
from paceline.data import Order
from paceline.data.indexed import indexed
from paceline.errors import ConfigError


def alone(count, batch, epochs=2):
    """The single-process script."""
    net = model()
    optimizer = sgd(net.parameters())
    features, labels = samples(count)
    for epoch in range(epochs):
        for some in Order(count, 0).steps(epoch, batch):
            optimizer.zero_grad()
            cross_entropy(net(features[some]), labels[some]).backward()
            optimizer.step()
    with torch.no_grad():
        outputs = net(features)
    loss, right = cross_entropy(outputs, labels).item(), (outputs.argmax(1) == labels).double().mean().item()
    return [p.detach() for p in net.parameters()], [loss, right, count]


# (ranks, batch of a rank, accumulate) that all make steps of 12 samples; 38 leaves a short step of 2, 37 one of 1.
@pytest.mark.parametrize(
    ("ranks", "batch", "accumulate"), [(1, 12, 1), (2, 6, 1), (3, 4, 1), (4, 3, 1), (3, 2, 2), (2, 2, 3)]
)
@pytest.mark.parametrize("strategy", ["ddp", "one_copy", "torch_ddp"])
def test_a_loop_of_ones_own_equals_one_process(zygote, strategy, ranks, batch, accumulate):
    count = 37 if strategy == "ddp" else 38
    wanted, metrics = alone(count, 12)
    results = zygote.run(
        "cases.library:loop", ranks, strategy=strategy, count=count, batch=batch, accumulate=accumulate
    )
    assert sum(result["seen"] for result in results) == 2 * count
    for result in results:
        for got, want in zip(result["parameters"], wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
        assert result["metrics"] == pytest.approx(metrics, rel=1e-5)
    if strategy == "ddp":
        assert results[0]["messages"] == [1] * 8  # one an update, however many passes


@pytest.mark.parametrize(("ranks", "count"), [(1, 11), (2, 11), (3, 10), (4, 2), (4, 1)])
def test_evaluation_is_exact_for_any_size_in_both_ways(zygote, ranks, count):
    features, labels = samples(count)
    outputs = model()(features)
    wanted = {
        "loss": cross_entropy(outputs, labels, reduction="sum").item(),
        "accuracy": (outputs.argmax(1) == labels).sum().item(),
    }
    distance = (outputs - labels[:, None]).abs().sum().item()
    for (sums, n), (scattered, m), (own, k) in zygote.run("cases.library:evaluated", ranks, count=count):
        assert n == m == k == count
        assert sums == pytest.approx(wanted) and scattered == pytest.approx(wanted)
        assert own == {"distance": pytest.approx(distance)}


@pytest.mark.parametrize("words", [False, True])
def test_scattering_nothing_is_refused_on_every_rank(zygote, words):
    with pytest.raises(AssertionError, match="rank 0 has no samples of tensors"):
        zygote.run("cases.library:scattered_nothing", 2, words=words)


SAYS = """
import sys
sys.path.insert(0, {tests!r})
import paceline as pl
from cases.library import says
with pl.join() as world:
    says(world.world)
"""


def test_rank_0_speaks_and_every_rank_warns(zygote, tmp_path, request):
    (tmp_path / "s.py").write_text(SAYS.format(tests=str(request.config.rootpath / "tests")))
    done = zygote.paceline("run", "s.py", "--ranks", 3, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["once", " 0", "ä 1", "ää 2"]
    lines = [line for line in done.err.splitlines() if not line.startswith("  ")]
    assert sorted(line for line in lines if ".py:" not in line) == ["information"] + ["warning"] * 3
    told = [re.sub(r"[^ ]*library\.py:\d+", "AT", line) for line in lines if ".py:" in line]
    assert sorted(told) == [
        "AT: RuntimeWarning: of some",
        "AT: UserWarning: of all",
        "paceline: warning of rank 1, 2 only: AT: RuntimeWarning: of some",
    ]


class Squares(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, at):
        return {"x": torch.tensor(float(at)), "y": at * at}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def test_what_samples_may_be_kept_in():
    features, labels = samples(5)
    at = [Order(5, 0).epoch(0)[:3]]
    loader = DataLoader(
        TensorDataset(features, labels),
        batch_size=2,
        collate_fn=lambda rows: torch.stack([row[0] for row in rows]),
    )
    for data in (features, [features, labels], (features, labels), TensorDataset(features, labels), loader):
        (batch,) = indexed(data).batches(at)
        assert torch.equal(batch[0], features[at[0]]) and len(indexed(data)) == 5
    ((batch,),) = indexed(Squares()).batches([Order(7, 0).epoch(0)])
    assert torch.equal(batch["x"] ** 2, batch["y"].float()) and sorted(batch["y"].tolist()) == [
        n * n for n in range(7)
    ]


@pytest.mark.parametrize("data", [Stream(), DataLoader(Stream()), 5, iter([1])])
def test_what_has_no_numbers_is_refused(data):
    with pytest.raises(ConfigError, match="no samples by number"):
        indexed(data)


def test_tensors_of_different_lengths_are_refused():
    with pytest.raises(ConfigError, match=r"\[2, 3\] rows"):
        indexed((torch.zeros(2), torch.zeros(3)))


def test_started_alone_it_is_a_world_of_one(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with pl.join() as world:
        assert (world.rank, world.size) == (0, 1)
        net = model()
        training = world.wrap(net, sgd(net.parameters()))
        first = next(world.shard(samples(9), 4, accumulate=2))
        assert isinstance(first, pl.Batch) and (first.own, first.last) == (4, False)
        with pytest.raises(ConfigError, match="this batch completes no update"):
            training.backward(training(first[0]).sum(), first)
        with pytest.raises(ConfigError, match="no strategy 'dpp'; did you mean 'ddp'"):
            world.wrap(net, sgd(net.parameters()), strategy="dpp")
        with pytest.raises(ConfigError, match="strategy 'torch_ddp' works over native only"):
            world.wrap(net, sgd(net.parameters()), strategy="torch_ddp", collective="ring")
        with pytest.raises(ConfigError, match="deals finer than by ranks"):
            world.wrap(net, sgd(net.parameters()), strategy="one_copy", deterministic=True)
        with pytest.raises(ConfigError, match="no samples to evaluate"):
            training.evaluate(samples(0))
        assert world.total(1, 2.5) == [1.0, 2.5]


def test_ranks_that_serve_are_refused_on_every_rank(zygote):
    for said in zygote.run("cases.library:refused_to_wrap", 2, strategy="parameter_server"):
        assert said.startswith("strategy 'parameter_server': some of its ranks serve the others")


def test_a_loop_of_ones_own_without_locks(zygote):
    results = zygote.run("cases.library:loop", 2, strategy="hogwild", count=38, batch=6, accumulate=1)
    assert sum(result["seen"] for result in results) == 2 * 38
    for a, b in zip(results[0]["parameters"], results[1]["parameters"], strict=True):
        assert torch.equal(a, b)
