import dataclasses
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.launch.environment import Place, command_started, current, process_started, read

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
NAMES = sorted(TORCHRUN)


@st.composite
def places(draw):
    nodes = draw(st.integers(1, 8))
    local_size = draw(st.integers(1, 8))
    node, local_rank = draw(st.integers(0, nodes - 1)), draw(st.integers(0, local_size - 1))
    return Place(
        rank=node * local_size + local_rank,
        size=nodes * local_size,
        local_rank=local_rank,
        local_size=local_size,
        node=node,
        nodes=nodes,
        launcher=draw(st.sampled_from(["local", "torchrun"])),
        address=draw(st.sampled_from(["127.0.0.1", "node-1", "::1"])),
        port=draw(st.integers(1, 65535)),
        listen_fd=draw(st.none() | st.integers(3, 100)),
        started=draw(st.floats(0, 4e9)),
    )


@given(places())
def test_an_exported_place_reads_back_but_for_its_socket(place):
    assert read(place.variables(), started=-1.0) == dataclasses.replace(place, listen_fd=None)


TEXTS = {name: st.sampled_from(["0", "1", "2", "3", "4"]) for name in NAMES}
ODD = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["", "-1", "x", "1.0", "٣", "70000"]), max_size=2
)


@given(st.builds(lambda usual, odd: usual | odd, st.fixed_dictionaries(TEXTS), ODD))
def test_any_variables_give_a_possible_place_or_one_line_of_error(variables):
    try:
        place = read(variables, started=0.0)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert any(name in str(error) for name in NAMES)
        return
    if place is not None:
        assert 0 <= place.local_rank <= place.rank < place.size
        assert place.local_rank < place.local_size <= place.size
        assert 0 <= place.node < place.nodes <= place.size


def test_torchrun_is_understood():
    place = read(TORCHRUN, started=5.0)
    assert place == Place(3, 4, 1, 2, 1, 2, "torchrun", "10.0.0.1", 29500, None, 5.0)


def test_the_number_of_nodes_follows_where_it_is_not_said():
    variables = {name: text for name, text in TORCHRUN.items() if name != "GROUP_WORLD_SIZE"}
    assert read(variables, started=0.0).nodes == 2


def test_torchrun_inside_a_local_rank_is_torchrun():
    assert read({**TORCHRUN, "PACELINE_LAUNCHER": "local"}, started=0.0).launcher == "torchrun"


@pytest.mark.parametrize(
    "variables",
    [{}, {"PATH": "/bin"}, {"MASTER_ADDR": "a", "MASTER_PORT": "1"}, {"TORCHELASTIC_RUN_ID": "x"}],
)
def test_nobody_launched_us(variables):
    assert read(variables, started=0.0) is None


@pytest.mark.parametrize(
    "name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"]
)
def test_a_missing_variable_is_named(name):
    with pytest.raises(ConfigError, match=f"is set but {name} is not"):
        read({**TORCHRUN, name: ""}, started=0.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RANK": "4"}, "RANK=4 is not below WORLD_SIZE=4"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"),
        ({"GROUP_RANK": "2"}, "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"),
        ({"RANK": "first"}, "RANK='first' is not an integer of 0 or more"),
        ({"RANK": "-1"}, "RANK='-1' is not an integer"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0' is not an integer of 1 or more"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT='70000' is not an integer of 1 to 65535"),
        ({"GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}, "do not fit GROUP_WORLD_SIZE=1"),
        ({"GROUP_WORLD_SIZE": "4"}, "do not fit GROUP_WORLD_SIZE=4"),
        (
            {"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"},
            "RANK=3 and LOCAL_RANK=1 do not fit GROUP_RANK=0",
        ),
        ({"RANK": "0"}, "RANK=0 and LOCAL_RANK=1 do not fit GROUP_RANK=1"),
        ({"TORCHELASTIC_RUN_ID": "x", "PACELINE_STARTED": "soon"}, "PACELINE_STARTED='soon' is not a time"),
    ],
)
def test_a_contradiction_is_named(changed, message):
    with pytest.raises(ConfigError, match=message):
        read({**TORCHRUN, **changed}, started=0.0)


def test_an_unknown_launcher_is_refused():
    variables = {name: text for name, text in TORCHRUN.items() if name != "TORCHELASTIC_RUN_ID"}
    with pytest.raises(ConfigError, match="PACELINE_LAUNCHER='slurm' is not one of local, torchrun"):
        read({**variables, "PACELINE_LAUNCHER": "slurm"}, started=0.0)


def test_current_reads_this_process(monkeypatch):
    for name in (*NAMES, "PACELINE_LAUNCHER", "PACELINE_STARTED"):
        monkeypatch.delenv(name, raising=False)
    assert current() is None
    for name, text in TORCHRUN.items():
        monkeypatch.setenv(name, text)
    place = current()
    assert (place.rank, place.size) == (3, 4)
    assert place.started == pytest.approx(process_started(os.getppid()), abs=0.1)  # torchrun's own start


def test_the_start_of_a_command_is_that_of_its_process(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert command_started() == pytest.approx(process_started(os.getpid()), abs=0.1)
    assert process_started(1) < command_started() < time.time()
    assert process_started(2**22 + 1) == pytest.approx(time.time(), abs=1)  # no such process: now
