"""`paceline run`: whose word is whose, and a script finds what python and torchrun would give it."""

from __future__ import annotations

import textwrap

import pytest

from paceline.cli import Parser, main, run


def resolved(*words):
    parser = Parser(prog="paceline run")
    run.add_arguments(parser)
    return run.resolve(parser.parse_everything(words))


@pytest.mark.parametrize(
    ("words", "name", "given", "ranks", "threads"),
    [
        (["s.py", "--ranks", "4"], "s.py", (), 4, None),
        (["--ranks", "4", "s.py"], "s.py", (), 4, None),
        (["s.py", "a", "--b", "c", "--ranks=3", "d", "--threads", "2", "e"], "s.py", ("a", "--b", "c", "d", "e"), 3, 2),
        (["--ranks", "2", "s.py", "--ranks", "3"], "s.py", (), 3, None),
        (["s.py", "--ranks", "2", "--", "--ranks", "7", "--", "x"], "s.py", ("--ranks", "7", "--", "x"), 2, None),
        (["s.py", "--help", "-m", "--rank", "1"], "s.py", ("--help", "-m", "--rank", "1"), 1, None),
        (["-m", "a.b", "--ranks", "2", "-x"], "a.b", ("-x",), 2, None),
    ],
)  # fmt: skip
def test_our_options_are_ours_up_to_two_dashes_and_the_rest_is_the_scripts(
    words, name, given, ranks, threads
):
    script, found, per_rank = resolved(*words)
    assert (script.name, script.arguments, script.module) == (name, given, words[0] == "-m")
    assert found == ranks and per_rank == (threads or run.threads_for(ranks))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.py"], "the script 'gone.py' is not there"),
        (["."], "the script '.' is a folder"),
        (["gone.py", "--ranks", "0"], "'0' is not a number of ranks"),
        (["gone.py", "--ranks"], "expected one argument"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys):
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


def test_under_a_launcher_the_script_itself_is_asked_for(monkeypatch, capsys):
    for name, value in {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert main(["run", "s.py"]) == 2
    assert "torchrun has started this process as rank 0 of 1; give it s.py itself" in capsys.readouterr().err


PLAIN = """
import atexit, os, sys, threading, time
import neighbour                              # found beside the script
import torch, torch.distributed as dist
dist.init_process_group("gloo")               # env://, as under torchrun
total = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(total)
dist.destroy_process_group()
print(int(total), sys.argv, sys.path[0], __name__, os.environ["LOCAL_RANK"] == os.environ["RANK"])
atexit.register(print, "exit handler")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
if os.environ["RANK"] != "0":
    sys.exit(0)                               # rank 0 leaves by its last line
"""


def test_a_script_for_torchrun_finds_what_python_and_torchrun_give(zygote, tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "neighbour.py").touch()
    (folder / "plain.py").write_text(PLAIN)
    done = zygote.paceline("run", "scripts/plain.py", "--epochs", 3, "--ranks", 3, cwd=tmp_path)
    assert done.code == 0, done.err
    argv = ["scripts/plain.py", "--epochs", "3"]
    line = f"6 {argv} {folder} __main__ True"
    assert sorted(done.out.splitlines()) == sorted([line, "thread", "exit handler"] * 3)


def test_a_module_is_found_from_here(zygote, tmp_path):
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "__init__.py").touch()
    (tmp_path / "box" / "inside.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = zygote.paceline("run", "-m", "box.inside", "x", "--ranks", 2, cwd=tmp_path)
    assert (done.code, done.out.splitlines()) == (0, ["__main__ ['x']"] * 2), done.err
    done = zygote.paceline("run", "-m", "box.outside", cwd=tmp_path)
    assert done.code == 2 and "no module 'box.outside'" in done.err


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("raise ValueError('planted')", "rank 1 raised ValueError: planted"),
        ("sys.exit(3)", "rank 1 left with exit code 3"),
        ("os.kill(os.getpid(), 9)", "rank 1 was killed by SIGKILL"),
    ],
)
def test_a_death_ends_all_and_the_cause_is_shown_from_the_script_on(zygote, tmp_path, ending, said):
    (tmp_path / "s.py").write_text(
        textwrap.dedent(
            f"""
            import os, sys
            import torch, torch.distributed as dist
            dist.init_process_group("gloo")
            if dist.get_rank() == 1:
                {ending}
            dist.barrier()
            """
        )
    )
    done = zygote.paceline("run", "s.py", "--ranks", 3, cwd=tmp_path)
    assert done.code == 1 and said in done.err.splitlines()[-1]
    assert "runpy" not in done.err and "forked.py" not in done.err
    assert ('File "s.py"' in done.err) == ("raise" in ending)
