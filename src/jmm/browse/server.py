"""The page over HTTP: on 127.0.0.1 alone, for the browser of the one who started it.

    GET  /                          the page, with /style.css and /script.js
    GET  /about                     what the index is
    GET  /recent                    {"hits": [...]}: the files that were written to last
    GET  /thumbnail/CONTENT/PAGE    a JPEG, so is /picture/CONTENT/PAGE
    POST /search                    {"query": TEXT}, or a picture's bytes -> {"hits": [...]}
    POST /heat/CONTENT/PAGE         the same query -> the numbers of the heat map

Whatever goes wrong is told as {"error": ...} with a status that fits.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from jmm import arguments
from jmm.browse.handler import Handler
from jmm.errors import InputError

ADDRESS = "127.0.0.1"
MOST_CONNECTIONS = 64

# How long the end of a server waits for answers that are being made.
CLOSE_SECONDS = 60

_logger = logging.getLogger("jmm")


class Answers(Protocol):
    """What the server asks; `jmm.browse.Library` has it."""

    def about(self) -> dict[str, Any]:
        """What there is."""

    def recent(self) -> list[dict[str, Any]]:
        """What to show before there is a query."""

    def search(
        self, query: Callable[[], str | bytes], is_wanted: Callable[[], bool]
    ) -> list[dict[str, Any]]:
        """Finds pages; ``query`` reads what is asked, once there is a place for it."""

    def picture(self, content: str, number: int, side: int) -> bytes:
        """A page as a JPEG file."""

    def heat(
        self,
        content: str,
        number: int,
        query: Callable[[], str | bytes],
        is_wanted: Callable[[], bool],
    ) -> dict[str, Any]:
        """What a query matched."""


class Server(socketserver.ThreadingTCPServer):
    """Serves the page of one index, to this machine alone.

    Args:
        library: What answers; from any thread.
        port: 0 takes a free one.

    Attributes:
        library: As given.
        hosts: What a browser of this machine may call the server by.

    Raises:
        InputError: The port is in use, is not allowed, or no port.

    Example:
        >>> from jmm.browse import Server
        >>> with Server(library=None, port=0) as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, library: Answers, port: int = 0) -> None:
        port = arguments.whole("port", port, 0, 65535)
        self.library = library
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be had ({error.strerror}); 0 takes a free one"
            ) from None
        suffix = "" if self.port == 80 else f":{self.port}"
        self.hosts = frozenset(f"{name}{suffix}" for name in (ADDRESS, "localhost"))

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, unless there are too many."""
        with self._lock:  # Ctrl-C may come here, and cannot leave it taken
            if len(self._connections) >= MOST_CONNECTIONS:
                self.shutdown_request(request)
                return
            self._connections.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection."""
        with self._changed:
            self._connections.add(request)  # Ctrl-C may have come while the thread started
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, request: socket.socket) -> None:
        with self._changed:
            self._connections.discard(request)
            self._changed.notify_all()

    def server_close(self) -> None:
        """Ends the connections, and waits for what is being answered.

        A thread that is still at work when Python ends may end the process.
        """
        super().server_close()
        with self._changed:
            for connection in self._connections:
                with suppress(OSError):  # the other end was faster
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._connections, CLOSE_SECONDS)

    def handle_error(self, *_: Any) -> None:
        """A connection that broke is no news."""
        _logger.debug("a connection broke", exc_info=True)
