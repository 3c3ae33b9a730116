"""The report in a real browser: headless Chromium opens it, light and dark, on a desk and on a phone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from made_study import make_study
from paceline.report.write import write

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE = 60
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write([make_study(tmp_path_factory.mktemp("browser") / "study")])


def browse(profile: Path, page: Path, *options: str) -> str:
    """Run the browser with a profile and a session of its own; whatever happens, all of it is gone after."""
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=DEADLINE)
        finally:
            end(process.pid)
    assert process.returncode == 0
    return output


def end(session: int) -> None:
    """Kill what is left of the session, if anything is."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def screenshot(folder: Path, page: Path, width: int, height: int, *, dark: bool) -> np.ndarray:
    """The page as pixels: height, width, (red, green, blue) from 0 to 1."""
    file = folder / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    browse(folder / "profile", page, f"--window-size={width},{height}", f"--screenshot={file}", scheme)
    return imread(file)[:, :, :3]


def colours(image: np.ndarray) -> int:
    """How many different ones; each packed into one integer."""
    return len(np.unique((image * 255).astype(np.uint32) @ np.array([1, 256, 65536], dtype=np.uint32)))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_desk(tmp_path, page, dark):
    image = screenshot(tmp_path, page, 1200, 6000, dark=dark)
    assert image.shape == (6000, 1200, 3)
    background = image[0, 0].mean()
    assert (background < 0.2) if dark else (background > 0.9)
    assert colours(image) > 200
    accent = image[:, :, 2] - image[:, :, 0] > 0.3  # the blue of the first line in every figure
    assert accent.sum() > 2_000


def test_a_phone_does_not_scroll_sideways(tmp_path, page):
    """Wide tables scroll inside their box: the margin on the right stays empty all the way down."""
    image = screenshot(tmp_path, page, 400, 12_000, dark=False)
    assert colours(image) > 200
    assert np.ptp(image[:, -8:, :], axis=(0, 1)).max() == 0


def test_headings_and_figures_are_rendered(tmp_path, page):
    document = browse(tmp_path / "profile", page, "--dump-dom")
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", document)[:3] == [
        "The answer",
        "Warnings",
        "Cells without a result",
    ]
    assert document.count("<svg") == document.count('role="img"') == 19
    assert "4&nbsp;ranks train 2.11&nbsp;times as fast" in document


def test_no_process_is_left(tmp_path, page):
    browse(tmp_path / "only-here", page, "--dump-dom")
    commands = [entry.joinpath("cmdline") for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    assert not [path for path in commands if b"only-here" in read(path)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
