"""A server on this machine that answers as a model hub does, and can fail in every way.

Routes and headers are those that huggingface_hub asks for: ``/api/models/ORG/NAME/revision/REV``
lists a commit, ``/ORG/NAME/resolve/REV/FILE`` gives a file: small ones from git, with git's hash
as their ETag, large ones by a redirect to storage on another host name, with their sha256.

Example:
    >>> with HubServer({"org/name": {"a.gguf": b"GGUF"}}) as server:
    ...     server.url
    'http://127.0.0.1:40193'
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class HubServer:
    """The repos, and what shall go wrong.

    Attributes:
        repos: The files of each repo's branch ``main``.
        token: What gated repos want.
        gated: Repos whose files need the token; their list of files does not.
        private: Repos of which nothing is told without the token.
        cut: The first so many bytes of a file are sent, then the connection ends; once.
        cut_always: The same for every request.
        wrong: Files of which other bytes are sent.
        page: Sent in place of every file, where it is not empty, as by a proxy.
        ignores_range: Sends files from their start whatever is asked.
        status: Answers everything so, if it is not 0.
        listed: Names to put into the list of files beside the true ones.
        asked: All requests.
    """

    repos: dict[str, Files]
    token: str = "hf_right"
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    cut: int = 0
    cut_always: bool = False
    wrong: set[str] = field(default_factory=set)
    page: bytes = b""
    ignores_range: bool = False
    status: int = 0
    listed: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    commits: dict[str, tuple[str, Files]] = field(default_factory=dict)

    def __enter__(self) -> HubServer:
        for repo in self.repos:
            self.commit(repo)
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def commit(self, repo: str) -> str:
        """Makes the repo's present files a commit, which ``main`` then stands for."""
        said = json.dumps({name: sha256(raw) for name, raw in self.repos[repo].items()})
        commit = hashlib.sha1(f"{repo} {said}".encode()).hexdigest()
        self.commits[commit] = (repo, dict(self.repos[repo]))
        self.commits[f"{repo} main"] = (commit, {})
        return commit

    def gets(self, name: str = "") -> list[Asked]:
        """The requests for the bytes of files, without the redirects."""
        return [
            a for a in self.asked if a.method == "GET" and "/storage/" in a.path and name in a.path
        ]

    def find(self, repo: str, revision: str) -> tuple[str, Files] | None:
        commit = self.commits.get(f"{repo} {revision}", (revision, {}))[0]
        found = self.commits.get(commit)
        return None if found is None or found[0] != repo else (commit, found[1])


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


listed_hash = sha256


def git_hash(raw: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        auth = self.headers.get("Authorization")
        hub.asked.append(Asked(self.command, path, self.headers.get("Range"), auth))
        if hub.status:
            return self._send(hub.status, b"out of order", with_body)
        parts = path.strip("/").split("/")
        if parts[0] == "storage":
            return self._storage("/".join(parts[1:3]), parts[3], "/".join(parts[4:]), with_body)
        is_list = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if is_list else parts[:2])
        has_token = auth == f"Bearer {hub.token}"
        if repo not in hub.repos or (repo in hub.private and not has_token):
            return self._send(401, b"", with_body, {"X-Error-Code": "RepoNotFound"})
        revision = (parts[5] if len(parts) > 5 else "main") if is_list else parts[3]
        found = hub.find(repo, revision)
        if found is None:
            return self._send(404, b"", with_body, {"X-Error-Code": "RevisionNotFound"})
        commit, files = found
        if is_list:
            return self._send(200, self._list(repo, commit, files), with_body)
        name = "/".join(parts[4:])
        if repo in hub.gated and not has_token:
            return self._send(403 if auth else 401, b"", with_body, {"X-Error-Code": "GatedRepo"})
        if name not in files:
            return self._send(404, b"", with_body, {"X-Error-Code": "EntryNotFound"})
        raw = files[name]
        about = {"X-Repo-Commit": commit, "ETag": f'"{git_hash(raw)}"'}
        if not name.endswith(".gguf"):
            body = b"{}" if name in hub.wrong else raw
            return self._send(200, body, with_body, about)
        port = hub.server.server_port
        about |= {
            "X-Linked-ETag": f'"{sha256(raw)}"',
            "X-Linked-Size": str(len(raw)),
            "Location": f"http://localhost:{port}/storage/{repo}/{commit}/{name}",
        }
        return self._send(302, b"", with_body, about)

    def _list(self, repo: str, commit: str, files: Files) -> bytes:
        siblings: list[dict[str, Any]] = [{"rfilename": name} for name in self.hub.listed]
        for name, raw in files.items():
            entry = {"rfilename": name, "size": len(raw), "blobId": git_hash(raw)}
            if name.endswith(".gguf"):
                entry["lfs"] = {"sha256": listed_hash(raw), "size": len(raw), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()

    def _storage(self, repo: str, commit: str, name: str, with_body: bool) -> None:
        hub = self.hub
        raw = hub.page or hub.commits[commit][1][name]
        if name in hub.wrong:
            raw = raw[:-1] + bytes([raw[-1] ^ 1])
        wanted = self.headers.get("Range")
        status, about, start = 200, {"ETag": f'"{sha256(raw)}"'}, 0
        if wanted and not hub.ignores_range:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            status = 206
            about["Content-Range"] = f"bytes {start}-{len(raw) - 1}/{len(raw)}"
        body = raw[start:]
        if hub.cut and with_body:
            sent = body[: hub.cut]
            hub.cut = hub.cut if hub.cut_always else 0
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for key, value in about.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(sent)
            self.close_connection = True
            return
        self._send(status, body, with_body, about)

    def _send(
        self, status: int, body: bytes, with_body: bool, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # else a server that is down answers on
        for key, value in (more or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)
