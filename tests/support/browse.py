"""A server in a thread, and requests to it by http.client."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from jmm.browse import Server
from jmm.browse.server import Answers

# A hang, however busy the machine.
TIMEOUT_S = 60

JSON = {"Content-Type": "application/json"}


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


@contextmanager
def serving(library: Answers) -> Iterator[Server]:
    """Serves until the end of the block."""
    with Server(library) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def connect(server: Server) -> http.client.HTTPConnection:
    """A connection that may carry several requests."""
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)


def ask(
    server: Server,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """One request on a connection of its own, with just these headers besides the usual."""
    connection = connect(server)
    try:
        connection.request(method, path, body, dict(headers or {}))
        return read(connection)
    finally:
        connection.close()


def read(connection: http.client.HTTPConnection) -> Response:
    """The answer."""
    response = connection.getresponse()
    return Response(response.status, response.headers, response.read())


def text(query: str) -> bytes:
    """A query as the page sends it."""
    return json.dumps({"query": query}).encode()
