"""The page's server with a fake index: every route, and who and what is refused."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import resources
from typing import Any

import pytest

from jmm.browse import BusyError, MissingPageError, Server
from jmm.browse import server as server_module
from jmm.browse.handler import IDLE_SECONDS, MOST_PICTURE_BYTES, MOST_TEXT_BYTES, Handler
from jmm.errors import DecodeError, InputError, OutOfMemoryError
from support.browse import JSON, TIMEOUT_S, ask, connect, read, serving, text

CONTENT = "pdf-" + "0123456789abcdef" * 2
STATIC = {"/": "index.html", "/style.css": "style.css", "/script.js": "script.js"}


class Fake:
    """Keeps what it is asked; answers with what it is given."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.before_reading: Callable[[], None] = lambda: None
        self.before_search: Callable[[Callable[[], bool]], None] = lambda is_wanted: None

    def _note(self, *words: Any) -> None:
        self.asked.append(words)
        if self.error is not None:
            raise self.error

    def about(self) -> dict[str, Any]:
        self._note("about")
        return {"folder": "fake", "pages": 3, "heat_maps": True, "pictures": True}

    def recent(self) -> list[dict[str, Any]]:
        self._note("recent")
        return [{"name": "new.pdf", "score": None}]

    def search(
        self, query: Callable[[], str | bytes], is_wanted: Callable[[], bool]
    ) -> list[dict[str, Any]]:
        self.before_reading()
        self._note("search", query())
        self.before_search(is_wanted)
        return [{"name": "é.pdf", "score": 0.5}]

    def picture(self, content: str, number: int, side: int) -> bytes:
        self._note("picture", content, number, side)
        return b"a picture"

    def heat(
        self,
        content: str,
        number: int,
        query: Callable[[], str | bytes],
        is_wanted: Callable[[], bool],
    ) -> dict[str, Any]:
        self._note("heat", content, number, query())
        return {"score": 0.5}


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def server(fake: Fake) -> Iterator[Server]:
    with serving(fake) as running:
        yield running


# --- routes ---


@pytest.mark.parametrize("path", STATIC)
def test_static_files(path: str, server: Server) -> None:
    found = ask(server, "GET", path + "?q=rain#top")
    assert found.status == 200
    file = resources.files("jmm.browse") / "static" / STATIC[path]
    assert found.body == file.read_bytes()
    kind = {"/": "html", "/style.css": "css", "/script.js": "javascript"}[path]
    assert found.headers["Content-Type"] == f"text/{kind}; charset=utf-8"


def test_the_page_needs_nothing_from_outside() -> None:
    for name in STATIC.values():
        file = resources.files("jmm.browse") / "static" / name
        source = file.read_text(encoding="utf-8")
        assert re.findall(r"https?:|//\w|@import|url\(", source) == []
        assert not re.search(r"<script>|<style|style=|\son\w+=", source), "the policy forbids it"


def test_about(server: Server) -> None:
    found = ask(server, "GET", "/about")
    assert found.json() == {
        "folder": "fake",
        "pages": 3,
        "heat_maps": True,
        "pictures": True,
        "most_picture_bytes": MOST_PICTURE_BYTES,
    }
    assert found.headers["Cache-Control"] == "no-store"


def test_recent(server: Server) -> None:
    found = ask(server, "GET", "/recent")
    assert found.json() == {"hits": [{"name": "new.pdf", "score": None}]}
    assert found.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("kind", "side"), [("thumbnail", 480), ("picture", 1600)])
def test_pictures(kind: str, side: int, server: Server, fake: Fake) -> None:
    found = ask(server, "GET", f"/{kind}/{CONTENT}/12")
    assert (found.status, found.body) == (200, b"a picture")
    assert found.headers["Content-Type"] == "image/jpeg"
    assert found.headers["Cache-Control"] == "private, max-age=31536000, immutable"
    assert fake.asked == [("picture", CONTENT, 12, side)]


@pytest.mark.parametrize("path", ["/search", f"/heat/{CONTENT}/3"])
@pytest.mark.parametrize(
    ("kind", "body", "query"),
    [
        ("application/json", text("Zürich 雨"), "Zürich 雨"),
        ("application/json; charset=utf-8", '{"query": "雨"}'.encode(), "雨"),
        ("image/png", b"\x89PNG\xff", b"\x89PNG\xff"),
        ("application/octet-stream", b"{}", b"{}"),
    ],
)
def test_queries(
    path: str, kind: str, body: bytes, query: str | bytes, server: Server, fake: Fake
) -> None:
    found = ask(server, "POST", path, body, {"Content-Type": kind})
    assert found.status == 200
    if path == "/search":
        assert found.json() == {"hits": [{"name": "é.pdf", "score": 0.5}]}
        assert fake.asked == [("search", query)]
    else:
        assert found.json() == {"score": 0.5}
        assert fake.asked == [("heat", CONTENT, 3, query)]


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/static/index.html",
        "/favicon.ico",
        "//[",
        "/../../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/style.css/",
        "/thumbnail",
        f"/thumbnail/{CONTENT}",
        f"/thumbnail/{CONTENT}/x",
        f"/thumbnail/{CONTENT}/-1",
        f"/thumbnail/{CONTENT}/1234567890",
        f"/thumbnail/{CONTENT}/1/",
        f"/thumbnail/{CONTENT}/../{CONTENT}/1",
        f"/thumbnail/{CONTENT.upper()}/1",
        f"/thumbnail/{CONTENT}0/1",
        "/picture/notes.txt/1",
        "/picture/%2fetc%2fpasswd/1",
    ],
)
def test_unknown_paths(path: str, server: Server, fake: Fake) -> None:
    found = ask(server, "GET", path)
    assert (found.status, found.json()) == (404, {"error": "there is nothing here"})
    assert fake.asked == []


def test_methods(server: Server, fake: Fake) -> None:
    for path in ("/search", f"/heat/{CONTENT}/1"):
        found = ask(server, "GET", path)
        assert (found.status, found.headers["Allow"]) == (405, "POST")
    for path in ("/", "/about", f"/picture/{CONTENT}/1"):
        found = ask(server, "POST", path, text("a"), JSON)
        assert (found.status, found.headers["Allow"]) == (405, "GET")
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(server, method, "/search", text("a"), JSON).status == 501
    assert fake.asked == []


@pytest.mark.parametrize("path", ["/", "/about", f"/picture/{CONTENT}/1", "/none"])
def test_every_answer_has_the_policy(path: str, server: Server) -> None:
    headers = ask(server, "GET", path).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "'self' blob:"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Server"] == "jmm"


def test_head_has_no_body(server: Server) -> None:
    found = raw(server, f"HEAD / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 501 ")
    assert found.endswith(b"\r\n\r\n")


def test_a_client_that_waits_to_be_told_to_send(server: Server, fake: Fake) -> None:
    body = text("a")
    head = (
        f"POST /search HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nExpect: 100-continue\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert fake.asked == [("search", "a")]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("http://127.0.0.1:{port}/about", 200),
        ("http://127.0.0.1:{port}/about?x#y", 200),
        ("http://rebound.example/about", 404),
        ("http://127.0.0.1:{port}", 404),
    ],
)
def test_a_request_that_names_the_host(line: str, status: int, server: Server) -> None:
    target = line.format(port=server.port)
    found = raw(server, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n")
    assert found.startswith(f"HTTP/1.1 {status} ".encode())


def test_many_requests_on_one_connection(server: Server, fake: Fake) -> None:
    connection = connect(server)
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("POST", "/search", text("a"), JSON)
        assert read(connection).status == 200
        connection.request("GET", "/about")
        assert read(connection).status == 200
        connection.request("GET", "/none")
        assert read(connection).status == 404
    assert connection.sock is first, "http.client would have connected again"
    connection.close()
    assert len(fake.asked) == 6


@pytest.mark.parametrize("path", ["/none", "/about", "/search"])
def test_a_body_that_is_not_read_is_no_request(path: str, server: Server, fake: Fake) -> None:
    inner = f"GET /picture/{CONTENT}/1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    found = raw(
        server,
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Content-Length: {len(inner)}\r\n\r\n{inner}",
    )
    assert found.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in found
    assert [asked[0] for asked in fake.asked] == ["about"] * (path == "/about")


# --- who may ask ---


def raw(server: Server, message: str | bytes) -> bytes:
    """Everything that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        found = b""
        with suppress(OSError):  # it may hang up before it has read everything
            connection.sendall(message.encode() if isinstance(message, str) else message)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
        return found


def test_it_listens_to_this_machine_alone(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}/"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("127.0.0.1", 421),
        ("localhost:1", 421),
        ("rebound.example:{port}", 421),
        ("127.0.0.1.rebound.example:{port}", 421),
        ("", 421),
        ("127.0.0.1:{port}\r\nHost: rebound.example", 421),
        (None, 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/about"])
def test_host(path: str, host: str | None, status: int, server: Server, fake: Fake) -> None:
    line = "" if host is None else f"Host: {host.format(port=server.port)}\r\n"
    found = raw(server, f"GET {path} HTTP/1.1\r\n{line}Connection: close\r\n\r\n")
    assert found.startswith(f"HTTP/1.1 {status} ".encode())
    assert len(fake.asked) == (status == 200 and path == "/about")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_sites(headers: dict[str, str], server: Server, fake: Fake) -> None:
    headers = {name: value.format(port=server.port) for name, value in headers.items()}
    for path in ("/about", f"/thumbnail/{CONTENT}/1", f"/picture/{CONTENT}/1"):
        assert ask(server, "GET", path, headers=headers).status == 403
    for path in ("/search", f"/heat/{CONTENT}/1"):
        assert ask(server, "POST", path, text("a"), {**JSON, **headers}).status == 403
    assert fake.asked == []
    assert ask(server, "GET", "/", headers=headers).status == 200  # a link to the page is one


def test_the_page_itself(server: Server) -> None:
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{server.port}"
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert ask(server, "POST", "/search", text("a"), {**JSON, **headers}).status == 200
    assert ask(server, "GET", "/about", headers={"Sec-Fetch-Site": "none"}).status == 200


# --- what may be asked ---


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
    ],
)
def test_content_types_of_forms_are_refused(kind: str | None, server: Server, fake: Fake) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    assert ask(server, "POST", "/search", text("a"), headers).status == 415
    assert fake.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"rain",
        b"[]",
        b"{}",
        b"3",
        b"null",
        b'{"query": 3}',
        b'{"query": null}',
        b'{"query": ["a"]}',
        b'{"query": "\xff"}',
        b'{"query": "\\ud800"}',
        b'{"query": ' + b"[" * 60_000,
    ],
)
def test_bad_json(body: bytes, server: Server, fake: Fake) -> None:
    found = ask(server, "POST", "/search", body, JSON)
    assert found.status == 400
    assert found.json() == {"error": 'a text is asked as {"query": "..."}'}
    assert fake.asked == []


def status(server: Server, kind: str, *lines: str) -> bytes:
    return declared(server, kind, *lines).split(b" ")[1]


def declared(server: Server, kind: str, *lines: str) -> bytes:
    """The answer to a request that has only been announced."""
    head = [
        "POST /search HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Type: {kind}",
        *lines,
    ]
    return raw(server, "\r\n".join([*head, "", ""]))


@pytest.mark.parametrize(
    ("kind", "most"),
    [("application/json", MOST_TEXT_BYTES), ("image/jpeg", MOST_PICTURE_BYTES)],
)
def test_sizes(kind: str, most: int, server: Server, fake: Fake) -> None:
    assert status(server, kind, f"Content-Length: {most + 1}") == b"413"
    assert status(server, kind, f"Content-Length: {'9' * 5000}") == b"413"
    size = {MOST_TEXT_BYTES: "64 KiB", MOST_PICTURE_BYTES: "32 MiB"}[most]
    told = declared(server, kind, f"Content-Length: {most + 1}")
    assert f"larger than {size}, the most that is taken".encode() in told
    for length in ("x", "-1", "", "1 1", "0x10", "²"):
        assert status(server, kind, f"Content-Length: {length}") == b"411", length
    assert status(server, kind) == b"411"
    assert status(server, kind, "Transfer-Encoding: chunked") == b"411"
    assert status(server, kind, "Content-Length: 2", "Transfer-Encoding: chunked") == b"411"
    assert fake.asked == []


@pytest.mark.parametrize("size", [1000, MOST_PICTURE_BYTES])
def test_a_full_queue_keeps_no_picture(
    size: int, server: Server, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body is read piece by piece and thrown away, so that the answer is heard."""

    def refuse() -> None:
        raise BusyError("busy")

    fake.before_reading = refuse
    monkeypatch.setattr(Handler, "_body", lambda *_: pytest.fail("it was kept"))
    found = ask(server, "POST", "/search", bytes(size), {"Content-Type": "image/png"})
    assert (found.status, found.json()) == (503, {"error": "busy"})
    assert found.headers["Connection"] == "close"
    assert fake.asked == []


def test_the_largest_that_is_taken(server: Server, fake: Fake) -> None:
    query = "a" * (MOST_TEXT_BYTES - len(text("")))
    assert ask(server, "POST", "/search", text(query), JSON).status == 200
    picture = bytes(MOST_PICTURE_BYTES)
    assert ask(server, "POST", "/search", picture, {"Content-Type": "image/png"}).status == 200
    assert fake.asked == [("search", query), ("search", picture)]


def test_a_request_that_ends_early_is_not_asked(server: Server, fake: Fake) -> None:
    head = f"POST /search HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    head += 'Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{"query": "a'
    assert raw(server, head) == b""
    assert fake.asked == []


@pytest.mark.parametrize(
    "message",
    [b"\r\n", b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03"],
)
def test_no_http(message: bytes, server: Server) -> None:
    found = raw(server, message)
    assert b" 200 " not in found
    assert ask(server, "GET", "/").status == 200


def test_long_lines(server: Server) -> None:
    assert ask(server, "GET", "/" + "a" * 70_000).status == 414
    assert ask(server, "GET", "/", headers={"X": "a" * 70_000}).status == 431
    many = {f"X-{number}": "a" for number in range(200)}
    assert ask(server, "GET", "/", headers=many).status == 431


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MissingPageError("gone"), 404),
        (InputError("bad"), 400),
        (BusyError("busy"), 503),
        (DecodeError("failed"), 500),
        (OutOfMemoryError("full"), 500),
    ],
)
def test_errors_are_told(error: Exception, status: int, server: Server, fake: Fake) -> None:
    fake.error = error
    for found in (
        ask(server, "GET", f"/thumbnail/{CONTENT}/1"),
        ask(server, "POST", "/search", text("a"), JSON),
        ask(server, "POST", f"/heat/{CONTENT}/1", text("a"), JSON),
    ):
        assert (found.status, found.json()) == (status, {"error": str(error)})
        assert found.headers["Cache-Control"] == "no-store"
        assert ("Retry-After" in found.headers) == (status == 503)


def test_a_fault_of_ours_is_logged_and_not_told(
    server: Server, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    fake.error = KeyError("a secret")
    with caplog.at_level(logging.ERROR, "jmm"):
        found = ask(server, "GET", "/about")
    assert found.status == 500
    assert b"secret" not in found.body
    assert "a secret" in caplog.text
    fake.error = None
    assert ask(server, "GET", "/about").status == 200


@pytest.mark.parametrize("gone", [False, True])
def test_whether_the_browser_still_waits(gone: bool, server: Server, fake: Fake) -> None:
    begun, may_ask, has_asked = threading.Event(), threading.Event(), threading.Event()
    answers = []

    def before_search(is_wanted: Callable[[], bool]) -> None:
        begun.set()
        may_ask.wait(TIMEOUT_S)
        answers.append(is_wanted())
        has_asked.set()

    fake.before_search = before_search
    connection = connect(server)
    connection.request("POST", "/search", text("a"), JSON)
    assert begun.wait(TIMEOUT_S)
    if gone:
        connection.close()
    may_ask.set()
    if not gone:
        assert read(connection).status == 200
        connection.close()
    assert has_asked.wait(TIMEOUT_S)
    assert answers == [not gone]


# --- connections ---


def test_too_many_connections(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 2)
    with serving(fake) as server:
        some = [connect(server) for _ in range(2)]
        for connection in some:
            connection.request("GET", "/about")
            assert read(connection).status == 200
        assert raw(server, "GET / HTTP/1.1\r\n\r\n") == b""
        some[0].close()
        deadline = time.monotonic() + TIMEOUT_S
        while not raw(server, f"GET /about HTTP/1.0\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # until its thread has seen that it is gone
        some[1].close()


def test_idle_connections_are_closed(
    server: Server, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Handler.timeout == IDLE_SECONDS
    monkeypatch.setattr(Handler, "timeout", 0.01)
    for begun in (b"", b"GET / HT", b"POST /search HTTP/1.1\r\nContent-Length: 5\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
            connection.sendall(begun)
            assert connection.recv(1) == b""
    assert fake.asked == []


def test_ports(server: Server, fake: Fake) -> None:
    with pytest.raises(InputError, match=f"port {server.port} cannot be had"):
        Server(fake, server.port)
    for port in (-1, 65536, "80", None):
        with pytest.raises(InputError, match="port is"):
            Server(fake, port)


def test_closing_waits_for_the_answer_that_is_being_made() -> None:
    fake, begun, done = Fake(), threading.Event(), []

    def work(_: Callable[[], bool]) -> None:
        begun.set()
        time.sleep(0.2)
        done.append("work")

    fake.before_search = work
    with serving(fake) as server:
        idle, asking = connect(server), connect(server)
        idle.connect()
        asking.request("POST", "/search", text("a"), JSON)
        assert begun.wait(TIMEOUT_S)
        server.shutdown()
        start = time.monotonic()
        server.server_close()
        assert done == ["work"]
        assert time.monotonic() - start < server_module.CLOSE_SECONDS / 2
        for connection in (idle, asking):
            connection.close()
