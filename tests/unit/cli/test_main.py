"""The command line: help without torch, one line for every mistake, exit codes."""

from __future__ import annotations

import pytest

from paceline import cli, errors
from paceline.cli import commands, main


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert {"data", "laws", "report", "study", "train"} <= set(commands())
    assert all(f"\n  {name}" in shown for name in commands())
    assert main([]) == 0


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("paceline ")


@pytest.mark.parametrize("command", commands())
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert len(capsys.readouterr().out) > 200


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "no command 'trian'; did you mean 'train'?"),
        (["train", "--rnks", "2"], "no option '--rnks'; did you mean '--ranks'?"),
        (["train", "--ranks", "two"], "--ranks two: must be a whole number"),
        (["train", "--lr", "fast"], "--lr fast: must be a number"),
        (["train", "--ranks"], "expected one argument"),
        (["train", "extra"], "did not expect 'extra'"),
        (["train", "--model", "mnist_cn"], "did you mean 'mnist_cnn'?"),
        (["train", "--config", "no.toml"], "no configuration file no.toml"),
        (["train", "--epochs", "1", "--steps", "2"], "epochs and steps are both given"),
        (["train", "--model-options", "dropout"], "is not key=value"),
        (["study", "no.toml"], "no configuration file no.toml"),
        (["study", "--ranks", "1,x"], "--ranks x: must be a whole number"),
        (["study", "--repeats", "0"], "repeats = 0 must be between"),
        (["study", "--lr", "-1"], "lr = -1.0 must be a positive number"),
        (["study", "."], ". is a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, expected, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_failed_rank_shows_its_own_traceback_first(monkeypatch, capsys):
    def fail(_words):
        raise errors.RankFailed(3, "raised ValueError", "Traceback …\nValueError: 7")

    monkeypatch.setattr(cli, "dispatch", fail)
    assert main(["train"]) == 1
    assert capsys.readouterr().err == "Traceback …\nValueError: 7\npaceline: rank 3 raised ValueError\n"


def test_exit_codes(monkeypatch, capsys):
    for error, code in [(errors.PacelineError("x"), 1), (errors.DataError("x"), 2), (errors.Incomplete("x"), 3),
                        (KeyboardInterrupt(), 130)]:  # fmt: skip
        monkeypatch.setattr(cli, "dispatch", lambda _words, error=error: (_ for _ in ()).throw(error))
        assert main([]) == code
    assert "interrupted" in capsys.readouterr().err


def test_did_you_mean():
    assert errors.did_you_mean("rign", ["ring", "shm"]) == "did you mean 'ring'?"
    assert errors.did_you_mean("zzz", ["shm", "ring"]) == "there is ring, shm"
