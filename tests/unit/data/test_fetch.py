"""Downloads from a real HTTP server on this machine: resumed, checked, and never half a file."""

from __future__ import annotations

import hashlib
import http.server
import socket
import threading
from dataclasses import dataclass, field

import pytest

from paceline.data import fetch as module
from paceline.data.definition import File
from paceline.data.fetch import fetch, fetch_file
from paceline.data.sets.mnist import Mnist
from paceline.errors import DataError

CONTENT = bytes(range(256)) * 4000


@dataclass
class Mirror:
    """What the server has, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    knows_range: bool = True
    stop_after: int | None = None  # bytes of a body, then the connection is closed
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        mirror = self.server.mirror
        asked = self.headers.get("Range")
        mirror.asked.append((self.path, asked))
        content = mirror.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = 0
        if asked and mirror.knows_range:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: mirror.stop_after])
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.mirror = Mirror({"/x.gz": CONTENT}, url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.mirror
        server.shutdown()
        thread.join()


def published(*urls, content=CONTENT):
    return File("x.gz", hashlib.md5(content).hexdigest(), len(content), urls)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_downloads_and_reports_progress(mirror, tmp_path):
    seen = []
    path = fetch_file(
        published(f"{mirror.url}/x.gz"), tmp_path, lambda done, total: seen.append((done, total))
    )
    assert path == tmp_path / "x.gz"
    assert files(tmp_path) == {"x.gz": CONTENT}
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 1
    fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert len(mirror.asked) == 1, "what is there and right is not asked for again"


def test_continues_where_it_was_cut_off(mirror, tmp_path):
    mirror.stop_after = 300_000
    file = published(f"{mirror.url}/x.gz")
    with pytest.raises(DataError, match="cut off after 300,000 of 1,024,000 bytes") as caught:
        fetch_file(file, tmp_path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == {"x.gz.part": CONTENT[:300_000]}, "nothing under the final name"
    mirror.stop_after = None
    fetch_file(file, tmp_path)
    assert mirror.asked[-1] == ("/x.gz", "bytes=300000-")
    assert files(tmp_path) == {"x.gz": CONTENT}


def test_a_second_mirror_continues_what_the_first_began(mirror, tmp_path):
    mirror.files["/other/x.gz"] = CONTENT
    mirror.stop_after = 600_000
    fetch_file(published(f"{mirror.url}/x.gz", f"{mirror.url}/other/x.gz"), tmp_path)
    assert mirror.asked == [("/x.gz", None), ("/other/x.gz", "bytes=600000-")]
    assert files(tmp_path) == {"x.gz": CONTENT}


def test_a_server_without_range_starts_again(mirror, tmp_path):
    mirror.knows_range = False
    (tmp_path / "x.gz.part").write_bytes(CONTENT[:1000])
    fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path) == {"x.gz": CONTENT}


@pytest.mark.parametrize("part", [b"another beginning", CONTENT + b"too long", b"x" * len(CONTENT)])
def test_a_part_of_something_else_is_thrown_away(mirror, tmp_path, part):
    (tmp_path / "x.gz.part").write_bytes(part)
    fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path) == {"x.gz": CONTENT}
    assert mirror.asked[-1] == ("/x.gz", None)


def test_a_whole_part_is_only_renamed(mirror, tmp_path):
    (tmp_path / "x.gz.part").write_bytes(CONTENT)
    fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path) == {"x.gz": CONTENT}
    assert mirror.asked == []


def test_the_wrong_file_is_not_kept(mirror, tmp_path):
    mirror.files["/x.gz"] = b"an error page that says 200"
    with pytest.raises(DataError, match=r"127\.0\.0\.1:\d+: delivered another file \(md5 \w{32}, published "):
        fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path) == {}


def test_an_old_file_stays_until_the_new_one_is_whole(mirror, tmp_path):
    (tmp_path / "x.gz").write_bytes(b"altered")
    mirror.stop_after = 10
    with pytest.raises(DataError, match="cut off"):
        fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path)["x.gz"] == b"altered"
    mirror.stop_after = None
    fetch_file(published(f"{mirror.url}/x.gz"), tmp_path)
    assert files(tmp_path) == {"x.gz": CONTENT}


def test_the_next_mirror_is_tried(mirror, tmp_path):
    fetch_file(published(f"{mirror.url}/absent", f"{mirror.url}/x.gz"), tmp_path)
    assert [path for path, _ in mirror.asked] == ["/absent", "/x.gz"]
    assert files(tmp_path) == {"x.gz": CONTENT}


def test_no_network_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    urls = (f"http://127.0.0.1:{port}/x.gz", f"http://localhost:{port}/x.gz")
    with pytest.raises(DataError, match=r"cannot fetch x\.gz .*no connection .*refused") as caught:
        fetch_file(published(*urls), tmp_path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == {}


def test_a_silent_server_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.gz"
        with pytest.raises(DataError, match="timed out"):
            fetch_file(published(url), tmp_path)


def test_a_whole_set_lands_where_it_is_looked_for(mirror, tiny, cache, monkeypatch, capsys):
    monkeypatch.setattr(Mnist, "layouts", (tuple(
        File(file.name, file.md5, file.size, (f"{mirror.url}/{file.name}",)) for file in Mnist.layouts[0]
    ),))  # fmt: skip
    mirror.files = {f"/{path.name}": path.read_bytes() for path in tiny.files}
    paths = fetch("mnist")
    assert [path.parent for path in paths] == [cache / "data" / "mnist"] * 4
    from paceline.data import prepare

    assert prepare("mnist").verified
    assert (
        fetch("mnist", tiny.root.parent / "elsewhere")[0].parent == tiny.root.parent / "elsewhere" / "mnist"
    )
    assert capsys.readouterr().err == ""


def test_nothing_to_fetch():
    assert fetch("digits") == []
    assert fetch("synthetic") == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="choose another with --to"):
        fetch("mnist", tmp_path / "file")
