"""What a terminal is left with."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from paceline.train.progress import Shown

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("began", [False, True])
def test_a_run_that_is_cut_off_gives_the_cursor_back(tmp_path, monkeypatch, began):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    progress = Shown(tmp_path, quiet=False)
    if began:
        progress.begin(SimpleNamespace(steps=10, steps_per_epoch=5, epochs=2))
        assert terminal.getvalue().count(HIDDEN) == 1
    for _ in range(2):
        progress.end()
    assert terminal.getvalue().count(SHOWN) == began
