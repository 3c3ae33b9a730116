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
        (["train", "--config", "."], ". cannot be read as text: Is a directory"),
        (["train", "--epochs", "9" * 30], "must be between 1 and 1000000000"),
        (["train", "--lr", "nan"], "lr = nan is not a number"),
        (["train", "--lr", "inf"], "must be a positive number"),
        (["train", "--model", ":x"], "is not module:thing"),
        (["train", "--model", "..x:y"], "is not module:thing"),
        (["train", "--model", "os:nothing"], "has no 'nothing'"),
        (["train", "--model", "nosuch:thing"], "cannot import 'nosuch'"),
        (["train", "--model", "mnist_cnn", "--model-options", "dropout=abc"], "dropout = 'abc' must be a number"),
        (["train", "--model", "mnist_cnn", "--model-options", "dropout=7"], "between 0 and 1, but got 7"),
        (["train", "--strategy-options", "bucket_mb=big"], "bucket_mb = 'big' must be a number"),
        (["train", "--collective", "shm", "--collective-options", "memory=ram"], "memory = 'ram'; there is anonymous, dev_shm"),
        (["train", "--collective-options", "x=3"], "has no option 'x'; it takes none"),
        (["train", "--data", "mnist", "--data-root", "nowhere"], "--data-root nowhere is not a folder"),
        (["train", "--data", "synthetic", "--data-options", "shape=[1,2]"], "shape is channels × height × width"),
        (["train", "--data", "synthetic", "--data-options", "classes=0"], "classes must be a whole number of at least 1"),
        (["train", "--strategy", "single", "--ranks", "2"], "at most 1 rank(s), not 2; use --strategy ddp"),
        (["train", "--strategy", "torch_ddp", "--collective", "shm"], "works over native only"),
        (["train", "--batch", "8", "--global-batch", "16"], "batch (per rank) and global_batch are both given"),
        (["train", "--global-batch", "1", "--ranks", "2"], "less than one sample each"),
        (["train", "--global-batch", "100000"], "more than the 1437 of 'digits'"),
        (["train", "--batch", "4", "--micro-batches", "8"], "use at most 4"),
        (["train", "--nesterov", "--momentum", "0"], "nesterov needs"),
        (["train", "--lr-rule", "linear"], "lr_rule needs lr_base_batch"),
        (["train", "--lr-base-batch", "64"], "has no effect without lr_rule"),
        (["train", "--augment", "shift:100"], "too far for (1, 28, 28); at most 27"),
        (["train", "--augment", "shfit:2"], "did you mean 'shift'?"),
        (["train", "--target", "98.5"], "target = 98.5 must be between 0 and 1"),
        (["train", "--out", "/dev/null/x"], "cannot make the folder /dev/null/x"),
        (["study", "no.toml"], "no configuration file no.toml"),
        (["study", "--ranks", "1,x"], "--ranks x: must be a whole number"),
        (["study", "--ranks", ","], "ranks = [] must be different whole numbers"),
        (["study", "--repeats", "0"], "repeats = 0 must be between"),
        (["study", "--lr", "-1"], "lr = -1.0 must be a positive number"),
        (["study", "--targets", "90"], "accuracies between 0 and 1"),
        (["study", "--batches", "2"], "cell strong-ddp-auto-p4-b2: global_batch = 2 gives 4 ranks less than one"),
        (["study", "--strategies", "single", "--ranks", "2"], "no cell is possible"),
        (["study", "."], ". is a folder"),
        (["study", "--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
        (["data", "lsit"], "paceline: data: ACTION cannot be 'lsit'; did you mean 'list'?"),
        (["data", "fetch", "minst"], "did you mean 'mnist'?"),
        (["report", "nowhere"], "no folder 'nowhere'"),
        (["report", "."], "no run below ."),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_exit_code_2_and_no_file(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rank", [0, 1])
def test_under_torchrun_one_rank_of_a_node_says_what_is_wrong(rank, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}  # fmt: skip
    for name, value in here.items():
        monkeypatch.setenv(name, str(value))
    assert main(["train", "--ranks", "3"]) == 2
    said = "paceline: torchrun started 2 ranks, but the configuration says ranks = 3; leave out --ranks\n"
    assert capsys.readouterr().err == ("" if rank else said)


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
