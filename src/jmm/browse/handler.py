"""One connection: who may ask, what is asked, what is told."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jmm.browse.turns import AbandonedError, BusyError
from jmm.errors import InputError, JmmError
from jmm.search import MissingPageError, page

if TYPE_CHECKING:
    from jmm.browse.server import Server

MOST_TEXT_BYTES = 64 * 2**10
MOST_PICTURE_BYTES = 32 * 2**20
IDLE_SECONDS = 30
_PIECE_BYTES = 64 * 2**10
THUMBNAIL_SIDE, PICTURE_SIDE = 480, 1600

_STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/script.js": ("script.js", "text/javascript; charset=utf-8"),
}
_PAGE = rf"(?P<content>{page.CONTENT})/(?P<number>[0-9]{{1,9}})"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NEVER_CHANGES = "private, max-age=31536000, immutable"

_logger = logging.getLogger("jmm")


class _RefusedError(Exception):
    """A request that is answered by a status and a reason."""

    def __init__(self, status: HTTPStatus, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers


class _Reply(NamedTuple):
    kind: str
    body: bytes
    cache: str = "no-store"


class Handler(BaseHTTPRequestHandler):
    """Serves a connection, one request after another."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # header and body leave together
    server: Server

    def do_GET(self) -> None:
        """Answers."""
        self._answer()

    def do_POST(self) -> None:
        """Answers."""
        self._answer()

    def _answer(self) -> None:
        try:
            self._send(HTTPStatus.OK, self._reply())
        except _RefusedError as error:
            self._refuse(error.status, str(error), error.headers)
        except AbandonedError:
            self.close_connection = True
        except MissingPageError as error:
            self._refuse(HTTPStatus.NOT_FOUND, error.message)
        except InputError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, error.message)
        except BusyError as error:
            self._discard()
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, error.message, {"Retry-After": "5"})
        except JmmError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, error.message)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:
            _logger.exception("a request failed: %s %r", self.command, self.path)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "this failed; the terminal tells more")

    def _reply(self) -> _Reply:
        # a body that is not read must not be taken for the next request
        self._ends = self.close_connection
        self._unread = 0
        self.close_connection |= "Content-Length" in self.headers
        self.close_connection |= "Transfer-Encoding" in self.headers
        host = self._host()
        path = self._path()
        for method, pattern, function in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method != self.command:
                raise _RefusedError(
                    HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is meant", Allow=method
                )
            if match:
                if function is not Handler._static:
                    self._check_site(host)
                return function(self, **match.groupdict())
        raise _RefusedError(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _path(self) -> str:
        # a proxy's form names the host too, which has to be that of the header
        path = self.path.removeprefix(f"http://{self.headers.get('Host')}")
        return re.split("[?#]", path, maxsplit=1)[0]

    def handle_expect_100(self) -> bool:
        """Tells a client to send its body, which waits for that."""
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _host(self) -> str:
        """Refuses names that another site has let point here (DNS rebinding)."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise _RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, f"this page is at {self.server.url}"
            )
        return hosts[0].lower()

    def _check_site(self, host: str) -> None:
        """Refuses what other pages send by the user's browser."""
        origin = self.headers.get("Origin", f"http://{host}")
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        if origin != f"http://{host}" or site not in ("same-origin", "none"):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "other pages may not ask here")

    # --- what there is ---

    def _static(self) -> _Reply:
        name, kind = _STATIC[self._path()]
        file = resources.files("jmm.browse") / "static" / name
        return _Reply(kind, file.read_bytes(), "no-cache")

    def _about(self) -> _Reply:
        limits = {"most_picture_bytes": MOST_PICTURE_BYTES}
        return _json({**self.server.library.about(), **limits})

    def _recent(self) -> _Reply:
        return _json({"hits": self.server.library.recent()})

    def _thumbnail(self, content: str, number: str) -> _Reply:
        return self._picture(content, number, THUMBNAIL_SIDE)

    def _picture(self, content: str, number: str, side: int = PICTURE_SIDE) -> _Reply:
        data = self.server.library.picture(content, int(number), side)
        return _Reply("image/jpeg", data, _NEVER_CHANGES)

    def _search(self) -> _Reply:
        hits = self.server.library.search(self._query(), self._is_wanted)
        return _json({"hits": hits})

    def _heat(self, content: str, number: str) -> _Reply:
        query = self._query()
        return _json(self.server.library.heat(content, int(number), query, self._is_wanted))

    # --- what is asked ---

    def _query(self) -> Callable[[], str | bytes]:
        """What reads the query; it is called when there is a place for it."""
        kind = self.headers.get_content_type()
        if kind.startswith("image/") or kind == "application/octet-stream":
            n_bytes = self._length(MOST_PICTURE_BYTES)
            return lambda: self._body(n_bytes)
        if kind != "application/json":
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a query is JSON, or a picture's bytes"
            )
        n_bytes = self._length(MOST_TEXT_BYTES)
        return lambda: _text(self._body(n_bytes))

    def _length(self, most: int) -> int:
        length = self.headers.get("Content-Length", "")
        if re.fullmatch("[0-9]+", length) is None or "Transfer-Encoding" in self.headers:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is needed")
        if len(length) > len(str(most)) or int(length) > most:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"this is larger than {_size(most)}, the most that is taken",
            )
        self._unread = int(length)
        return self._unread

    def _discard(self) -> None:
        """Reads a body piece by piece: who is still sending would not hear the answer."""
        while self._unread > 0 and (part := self.rfile.read(min(self._unread, _PIECE_BYTES))):
            self._unread -= len(part)

    def _body(self, n_bytes: int) -> bytes:
        self._unread = 0
        body = self.rfile.read(n_bytes)
        if len(body) < n_bytes:
            raise AbandonedError("the request ended early")
        self.close_connection = self._ends
        return body

    def _is_wanted(self) -> bool:
        """Whether the browser still waits: it hangs up when the user has gone on."""
        self.connection.setblocking(False)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.connection.settimeout(self.timeout)

    # --- what is told ---

    def _refuse(self, status: HTTPStatus, why: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, _json({"error": why}), headers or {})

    def _send(
        self, status: HTTPStatus, reply: _Reply, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        fields = {
            "Content-Type": reply.kind,
            "Content-Length": str(len(reply.body)),
            "Cache-Control": reply.cache,
            **_HEADERS,
            **(headers or {}),
        }
        if self.close_connection:
            fields["Connection"] = "close"
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, *_: Any) -> None:
        """What http.server itself refuses: no HTTP, other methods, too long a line."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._refuse(status, message or status.phrase)

    def version_string(self) -> str:
        """The server's name, without versions."""
        return "jmm"

    def log_message(self, format: str, *args: object) -> None:
        """Requests are told to those who listen for them."""
        _logger.debug(format, *args)


_Route: TypeAlias = "tuple[str, str, Callable[..., _Reply]]"
_ROUTES: list[_Route] = [
    *(("GET", re.escape(path), Handler._static) for path in _STATIC),
    ("GET", "/about", Handler._about),
    ("GET", "/recent", Handler._recent),
    ("GET", f"/thumbnail/{_PAGE}", Handler._thumbnail),
    ("GET", f"/picture/{_PAGE}", Handler._picture),
    ("POST", "/search", Handler._search),
    ("POST", f"/heat/{_PAGE}", Handler._heat),
]


def _text(body: bytes) -> str:
    try:
        query = json.loads(body)["query"]
        query.encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError('a text is asked as {"query": "..."}') from None
    return str(query)


def _size(n_bytes: int) -> str:
    return f"{n_bytes // 2**20} MiB" if n_bytes >= 2**20 else f"{n_bytes // 2**10} KiB"


def _json(value: Any) -> _Reply:
    return _Reply("application/json", json.dumps(value).encode())
