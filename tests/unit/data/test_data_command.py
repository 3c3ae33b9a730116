"""`paceline data …` as it is typed."""

from __future__ import annotations

import pytest

from paceline.cli import main
from paceline.registry import DATA_SETS


@pytest.fixture
def paceline(capsys):
    """Run one command line; gives exit code, standard output, standard error."""

    def run(*words):
        code = main(["data", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_list_says_where_each_set_is_and_what_to_do(paceline, tiny):
    code, out, _ = paceline("list", "--data-root", tiny.root)
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[0] for row in rows[1:]] == DATA_SETS.names()
    state = {row[0]: row[-2:] for row in rows}
    assert state["name"] == ["state", "files"]
    assert state["mnist"] == ["unchecked", str(tiny.root / "mnist")]
    assert state["svhn"] == ["missing", "paceline data fetch svhn"]
    assert state["digits"] == ["embedded", "in the package"]
    paceline("prepare", "mnist", "--data-root", tiny.root)
    assert "\tverified\t" in paceline("list", "--data-root", tiny.root)[1]


def test_check_gives_a_verdict_a_file(paceline, tiny):
    code, out, err = paceline("check", "mnist", "--data-root", tiny.root)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"mnist: ok    {path}" for path in tiny.files]
    tiny.files[2].write_bytes(b"short")
    code, out, err = paceline("check", "mnist", "digits", "--data-root", tiny.root)
    assert code == 2
    assert f"mnist: WRONG {tiny.files[2]}" in out
    assert out.count("digits: ok") == 2, "the sets after a wrong one are checked too"
    assert err.count("\n") == 1
    assert tiny.files[2].name in err


def test_prepare_warns_about_what_it_accepts(paceline, tiny):
    content = tiny.files[0].read_bytes()
    tiny.files[0].write_bytes(content[:4] + b"\1\0\0\0" + content[8:])  # another time stamp
    assert paceline("prepare", "mnist", "--data-root", tiny.root)[0] == 2
    code, out, err = paceline("prepare", "mnist", "--data-root", tiny.root, "--allow-unverified")
    assert code == 0
    assert out.startswith("mnist: 50 train, 20 test, 0.1 MB, in ")
    assert err.startswith("paceline: warning: mnist: train-images-idx3-ubyte.gz is not the official file")


def test_prepare_takes_the_options_of_a_set(paceline):
    words = ("--option", "shape=3x8x8", "--option", "train=30", "--option", "test=10", "synthetic")
    code, out, _ = paceline("prepare", *words)
    assert code == 0
    assert out.startswith("synthetic: 30 train, 10 test")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "required: ACTION"),
        (("lst",), "ACTION cannot be 'lst'; did you mean 'list'?"),
        (("fetch",), "required: NAME"),
        (("fetch", "mnits"), "did you mean 'mnist'?"),
        (("fetch", "mnist", "--allow-unverified"), "paceline: data fetch: no option '--allow-unverified'"),
        (("prepare", "mnist", "--allow-unverifed"), "did you mean '--allow-unverified'?"),
        (("prepare", "synthetic", "--option", "train"), "--option is KEY=VALUE, got 'train'"),
        (("prepare", "synthetic", "--option", "trian=3"), "did you mean 'train'?"),
        (("check", "mnist"), "run `paceline data fetch mnist`"),
        (("list", "--data-root", "/no/such"), "--data-root /no/such is not a folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(paceline, words, says):
    code, out, err = paceline(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("action", ["fetch", "check"])
def test_sets_without_downloads(paceline, action):
    assert paceline(action, "synthetic")[0] == 0
    assert paceline(action, "digits")[0] == 0
