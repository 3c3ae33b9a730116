"""`paceline check` over the planted scripts: every fault is found, alone, and the right ones give silence.

right_<what>.py                 nothing may be found
wrong_<finding>[__variant].py   exactly this finding
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PLANTED = Path(__file__).resolve().parents[1] / "planted"
SCRIPTS = sorted([*PLANTED.glob("right_*.py"), *PLANTED.glob("wrong_*.py")])


def checked(zygote, folder, script, *words):
    done = zygote.paceline(
        "check", script, "--threads", 1, "--timeout", 60, "--json", "found.json", *words, cwd=folder
    )
    file = folder / "found.json"
    return done, json.loads(file.read_text()) if file.exists() else {}


def expected(script: Path) -> list[str]:
    return [] if script.stem.startswith("right_") else [script.stem.removeprefix("wrong_").partition("__")[0]]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_was_planted_is_found_and_nothing_else(zygote, tmp_path, script):
    done, found = checked(zygote, tmp_path, script)
    assert [each["name"] for each in found["findings"]] == expected(script), done.out + done.err
    assert done.code == (1 if expected(script) else 0)
    for each in found["findings"]:
        assert each["evidence"] in done.out and each["fix"] in done.out


@pytest.mark.parametrize(
    "name", ["right_manual", "right_sum_loss", "wrong_wrong_scale__twice", "wrong_padded_evaluation"]
)
def test_three_ranks(zygote, tmp_path, name):
    script = PLANTED / f"{name}.py"
    done, found = checked(zygote, tmp_path, script, "--ranks", 3)
    assert [each["name"] for each in found["findings"]] == expected(script), done.out + done.err
    assert found["ranks"] == 3


def test_every_finding_has_a_planted_script():
    from paceline.check import judge

    source = Path(judge.__file__).parent
    names = {name for script in SCRIPTS for name in expected(script)}
    judgements = {line.split(".")[1].rstrip(",") for line in Path(judge.__file__).read_text().splitlines()
                  if line.startswith(("        replicas.", "        samples.", "        gradients.", "        cost."))}  # fmt: skip
    assert names == judgements and source.is_dir()


def test_epochs_are_cut_so_that_a_long_script_ends(zygote, tmp_path):
    script = tmp_path / "long.py"
    text = (PLANTED / "right_ddp.py").read_text().replace("dataset(96)", "dataset(9600)")
    script.write_text(f"import sys; sys.path.insert(0, {str(PLANTED)!r})\n{text}\nprint('reached its end')\n")
    done, found = checked(zygote, tmp_path, script, "--steps", 8)
    assert found["findings"] == [] and "reached its end" in done.out
    assert 8 <= found["steps"] <= 12  # of 1,800
    assert found["not_seen"] == []


def test_a_loop_that_cannot_be_cut_is_ended(zygote, tmp_path):
    script = tmp_path / "endless.py"
    text = (
        (PLANTED / "right_manual.py")
        .read_text()
        .replace("range(4)", "range(10**9)")
        .replace("net()", "net(norm=True)")
    )
    script.write_text(f"import sys; sys.path.insert(0, {str(PLANTED)!r})\n{text}")
    done, found = checked(zygote, tmp_path, script, "--steps", 4)
    assert (done.code, found["findings"], found["steps"]) == (0, [], 20)
    assert [line.partition(":")[0] for line in found["not_seen"]] == [
        "evaluation",
        "reshuffling",
        "BatchNorm statistics",
    ]


def test_a_script_that_fails_shows_its_own_traceback(zygote, tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("def f():\n    raise FloatingPointError('planted')\nf()\n")
    done, found = checked(zygote, tmp_path, script)
    assert done.code == 1 and "FloatingPointError: planted" in done.err
    assert "nothing wrong" not in done.out and "/paceline/" not in done.err  # its own code alone
    assert found["findings"] == [] and "FloatingPointError" in found["failure"]


def test_arguments_reach_the_script_and_a_user_is_told(zygote, tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    done, _ = checked(zygote, tmp_path, script, "--ranks", 2, "--", "--steps", 7)
    assert "['--steps', '7']" in done.out
    assert done.code == 2 and "made no optimizer step" in done.err
    for words, said in [
        (["gone.py"], "is not there"),
        ([script, "--ranks", 1], "one rank agrees with itself"),
        ([script, "--timeout", "-1"], "positive number of seconds"),
    ]:
        done = zygote.paceline("check", *words, cwd=tmp_path)
        assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1
