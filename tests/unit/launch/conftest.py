"""Fresh Python processes start the ranks: the test process may run threads that cannot be forked."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from paceline.errors import ConfigError, DataError, PacelineError, RankFailed, UsageError
from paceline.launch.local import start

def report(function, ranks, **options):
    "Start, and tell what came of it as one line of JSON."
    before = time.monotonic()
    said = {"raised": None}
    try:
        lost = start(function, ranks, threads=1, **{"deadline": 20, **options})
        said["lost"] = [(error.rank, str(error)) for error in lost]
    except BaseException as error:
        said = {"raised": type(error).__name__, "text": str(error), "rank": getattr(error, "rank", None),
                "details": getattr(error, "details", ""), "code": getattr(error, "code", None)}
    said["seconds"] = time.monotonic() - before
    print(json.dumps(said), flush=True)
"""


class Script:
    """A program that starts ranks, run as a process of its own and never longer than 30 s."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def begin(self, body, **options):
        path = self.folder / f"script_{len(self.processes)}.py"
        path.write_text(PRELUDE + textwrap.dedent(body))
        process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
            # Buffered, so that each rank's text comes in one piece when it ends.
            env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
            **options,
        )
        self.processes.append(process)
        return process

    def run(self, body, **options):
        """(what it printed before the last line, the last line's JSON)"""
        process = self.begin(body, **options)
        out, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        *printed, last = out.splitlines()
        return printed, json.loads(last)

    def wait_for(self, *names):
        """Until the program's ranks have made these files; their contents as integers."""
        paths = [self.folder / name for name in names]
        give_up = time.monotonic() + 20
        while not all(path.exists() and path.read_text() for path in paths):
            assert time.monotonic() < give_up, "the ranks did not come up"
            assert self.processes[-1].poll() is None, self.processes[-1].communicate()
            time.sleep(0.01)
        return [int(path.read_text()) for path in paths]

    def pids_of(self, *names):
        """What the ranks of a program that has ended wrote into these files."""
        return [int((self.folder / name).read_text()) for name in names]

    def end(self):
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=10)


@pytest.fixture
def script(tmp_path):
    runner = Script(tmp_path)
    yield runner
    runner.end()


@pytest.fixture
def gone():
    """A function: are these processes gone within so many seconds? Init may reap orphans later."""

    def there(pid, orphan):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return not (orphan and state == "Z")

    def wait(pids, seconds, orphans=False):
        give_up = time.monotonic() + seconds
        while any(there(pid, orphans) for pid in pids):
            if time.monotonic() > give_up:
                return False
            time.sleep(0.02)
        return True

    return wait
