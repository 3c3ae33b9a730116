"""`paceline study`, with real ranks: cells, laws, report; interrupted and continued; a failed cell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.data.lock import exclusive

SMALL = """
name = "small"
ranks = [1, 2]
scaling = ["strong", "weak"]
batches = [60]
repeats = 2
targets = [0.5]
[run]
model = "mlp"
model_options = { hidden = 8 }
threads = 1
"""


@pytest.fixture
def study_file(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    return "small.toml"


def started(folder: Path) -> dict[str, str]:
    """When each finished cell was run."""
    return {
        path.parent.name: json.loads(path.read_text())["started"]
        for path in folder.glob("cells/*/summary.json")
    }


def test_a_study_ends_with_its_report_and_goes_on_where_it_was(zygote, tmp_path, study_file):
    done = zygote.paceline("study", study_file, "--out", "s", cwd=tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "s"
    assert done.out.splitlines()[-1].endswith("s/report.html")
    for name in ("report.html", "report.md", "report.ipynb", "study.toml", "study.json", "laws.json"):
        assert (folder / name).stat().st_size > 100, name
    index = json.loads((folder / "study.json").read_text())
    assert len(index["cells"]) == 8
    assert {cell["status"] for cell in index["cells"]} == {"done"}
    groups = json.loads((folder / "laws.json").read_text())["groups"]
    assert [(g["scaling"], g["ranks"], len(g["train_seconds"]["2"])) for g in groups] == [
        ("strong", [1, 2], 2),
        ("weak", [1, 2], 2),
    ]

    first = started(folder)
    lost = sorted(first)[3]
    shutil.rmtree(folder / "cells" / lost)
    assert "At equal samples: up to" in (folder / "report.md").read_text()
    again = zygote.paceline("study", study_file, "--out", "s", "--compare", "updates", cwd=tmp_path)
    assert again.code == 0 and "8 cells, 7 done already" in again.err
    assert "At equal updates: up to" in (folder / "report.md").read_text()  # and no cell was run for that
    second = started(folder)
    assert second.keys() == first.keys()
    assert {name for name in second if second[name] != first[name]} <= {lost}

    changed = zygote.paceline("study", study_file, "--out", "s", "--lr", "0.01", cwd=tmp_path)
    assert changed.code == 0 and "8 cells, 0 done already" in changed.err
    groups = json.loads((folder / "laws.json").read_text())["groups"]
    assert [len(g["train_seconds"]["2"]) for g in groups] == [2, 2], "cells of the old configuration counted"


def test_interleaved_over_repeats_and_each_with_its_own_seed(zygote, tmp_path, study_file):
    done = zygote.paceline("study", study_file, "--dry-run", cwd=tmp_path)
    cells = done.out.split()
    assert [cell.rsplit("-", 1)[0] for cell in cells[:5]] == [
        "strong-ddp-auto-p1-b60-s0",
        "strong-ddp-auto-p2-b60-s0",
        "weak-ddp-auto-p1-b60-s0",
        "weak-ddp-auto-p2-b60-s0",
        "strong-ddp-auto-p1-b60-s1",
    ]
    assert not (tmp_path / "runs").exists()


def test_a_failed_cell_is_reported_and_does_not_lose_the_others(zygote, tmp_path):
    (tmp_path / "half_bad.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(784, 10)\n"
        "    def forward(self, x):\n"
        "        if os.environ['WORLD_SIZE'] == '2': raise FloatingPointError('planted')\n"
        "        return super().forward(x.flatten(1))\n"
    )
    words = ["study", "--ranks", "1,2,3", "--scaling", "strong", "--repeats", "1", "--epochs", "1"]
    (tmp_path / "s.toml").write_text('name = "s"\n[run]\nmodel = "half_bad:Net"\nthreads = 1\n')
    done = zygote.paceline(*words[:1], "s.toml", *words[1:], "--out", "s", cwd=tmp_path)
    assert done.code == 3, done.err
    assert "1 of 3 cells failed" in done.err.splitlines()[-1]
    index = json.loads((tmp_path / "s/study.json").read_text())
    assert [cell["status"] for cell in index["cells"]] == ["done", "failed", "done"]
    assert "planted" in (tmp_path / "s/report.html").read_text()


def test_a_second_run_of_a_study_keeps_away_from_the_first(zygote, tmp_path, study_file):
    (tmp_path / "s").mkdir()
    with exclusive(tmp_path / "s/.lock", "run it"):
        done = zygote.paceline("study", study_file, "--out", "s", cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("paceline: there is another process to run the study in s")
    assert [path.name for path in (tmp_path / "s").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--global-batch", "4"], "no option '--global-batch'"),
        (["--ranks", "100", "--batches", "60"], "gives 100 ranks less than one sample each"),
        (["--strategies", "single", "--ranks", "2"], "no cell is possible"),
        (["--model-options", "hiden=3"], "did you mean 'hidden'?"),
    ],
)
def test_an_impossible_study_starts_nothing(zygote, tmp_path, study_file, words, expected):
    done = zygote.paceline("study", study_file, *words, cwd=tmp_path)
    assert done.code == 2 and expected in done.err, done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_whole_cells_and_no_process(tmp_path, study_file):
    command = [sys.executable, "-m", "paceline", "study", study_file, "--out", "s", "--epochs", "3"]
    study = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        give_up = time.monotonic() + 60
        while not started(tmp_path / "s") and time.monotonic() < give_up:
            time.sleep(0.05)
        os.killpg(study.pid, signal.SIGINT)
        _, err = study.communicate(timeout=20)
    finally:
        study.kill()
        study.wait()
    assert study.returncode == 130, err
    before = started(tmp_path / "s")
    assert 1 <= len(before) < 8
    done = subprocess.run([*command], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    after = started(tmp_path / "s")
    assert len(after) == 8 and {name: after[name] for name in before} == before


VARIANTS = """
name = "variants"
ranks = [2]
batches = [60]
[[variants]]
name = "ddp, rank 1 slow"
slow = "1:2"
[[variants]]
name = "server"
strategy = "parameter_server"
ranks = [3]
[run]
model = "mlp"
model_options = { hidden = 8 }
epochs = 1
threads = 1
"""


def test_variants_are_cells_and_legends_of_their_own(zygote, tmp_path):
    (tmp_path / "variants.toml").write_text(VARIANTS)
    done = zygote.paceline("study", "variants.toml", "--out", "s", cwd=tmp_path)
    assert done.code == 0, done.err
    groups = json.loads((tmp_path / "s/laws.json").read_text())["groups"]
    assert [(group["variant"], group["ranks"]) for group in groups] == [
        ("ddp, rank 1 slow", [2]),
        ("server", [3]),
    ]
    page = (tmp_path / "s/report.md").read_text()
    for text in ("ddp, rank 1 slow, global batch 60", "server, global batch 60", "What cooperating took"):
        assert text in page
