"""One repo's folder in the client's cache, and what we note there of each commit.

The layout is the client's: ``blobs/<sha256 or git hash>``, ``snapshots/<commit>/<name>`` as links
to them, ``refs/<branch>`` with a commit. Beside them ``jmm/<commit>.json`` keeps the commit's list
of files, so that a second load chooses as the first did and needs no network, and which files had
the right hash, so that a file is hashed once and not at each load.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jmm.errors import ModelLoadError

COMMIT = re.compile(r"[0-9a-f]{40}")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """What is known of a file beforehand.

    Attributes:
        size: In bytes, None if unknown.
        oid: Its sha256 (64 hexadecimal digits), git's hash of it (40), or empty if unknown.
    """

    size: int | None = None
    oid: str = ""

    @classmethod
    def of(cls, size: object, oid: object) -> Entry:
        """From what a server says, without what is no size and no hash."""
        known = oid if isinstance(oid, str) and _HASH.fullmatch(oid) else ""
        return cls(size if isinstance(size, int) and size >= 0 else None, known)

    @property
    def sha256(self) -> str:
        """The sha256, empty if another hash is known."""
        return self.oid if len(self.oid) == 64 else ""


@dataclass(frozen=True)
class Storage:
    """The folder of one repo in the cache.

    Attributes:
        folder: It need not be there.
    """

    folder: Path

    def blob(self, oid: str) -> Path:
        """Where the file with a hash lies."""
        return self.folder / "blobs" / oid

    def path(self, commit: str, name: str) -> Path:
        """Where a file of a commit lies."""
        return self.folder / "snapshots" / commit / name

    def commit(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit stood for when it was last loaded."""
        if COMMIT.fullmatch(revision):
            return revision
        with contextlib.suppress(OSError, ValueError):
            found = (self.folder / "refs" / revision).read_text().strip()
            return found if COMMIT.fullmatch(found) else None
        return None

    def note_commit(self, revision: str, commit: str) -> None:
        """Keeps what a branch or tag stands for now."""
        if revision != commit:
            with contextlib.suppress(OSError):
                _replace(self.folder / "refs" / revision, commit)

    def entries(self, commit: str) -> dict[str, Entry] | None:
        """The commit's files as noted; None if it was never listed."""
        try:
            files = self._notes(commit)["files"]
            return {name: Entry.of(size, oid) for name, (size, oid) in files.items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def note_entries(self, commit: str, entries: Mapping[str, Entry]) -> None:
        """Keeps the commit's list of files."""
        files = {name: (entry.size, entry.oid) for name, entry in entries.items()}
        self._note(commit, {"files": files, "checked": {}})

    def cached_entries(self, commit: str) -> dict[str, Entry]:
        """The files of a commit that lie here: those that other programs have loaded too."""
        root = self.path(commit, "")
        found = {}
        for path in sorted(root.rglob("*")):
            if os.path.isfile(path):
                name = path.relative_to(root).as_posix()
                found[name] = Entry.of(path.stat().st_size, _blob_name(path))
        return found

    def check(self, commit: str, name: str, entry: Entry) -> str:
        """The sha256 of a file, which is what it should be.

        Raises:
            ModelLoadError: Size or hash are not those of the commit.
        """
        path = self.path(commit, name)
        oid = entry.oid or Entry.of(None, _blob_name(path)).oid
        try:
            about = path.stat()
            stamp = [about.st_size, about.st_mtime_ns, oid]
            checked = self._notes(commit).get("checked", {})
            noted = checked.get(name)
            if isinstance(noted, list) and len(noted) == 4 and noted[1:] == stamp:
                return str(noted[0])
            sha256, found = hash_file(path, oid)
        except OSError as error:
            raise ModelLoadError(f"{path}: the file cannot be read: {error.strerror}") from error
        if oid and found != oid:
            raise ModelLoadError(
                f"{os.path.realpath(path)}: the file is damaged: its hash is {found} and {oid} is "
                "right; delete it to load it again"
            )
        self._note(commit, {"checked": {**checked, name: [sha256, *stamp]}})
        return sha256

    def _notes(self, commit: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            notes = json.loads(self._notes_path(commit).read_bytes())
            if isinstance(notes, dict) and isinstance(notes.get("checked"), dict):
                return notes
        return {}

    def _note(self, commit: str, more: dict[str, Any]) -> None:
        # a cache that cannot be written is one to read: its files are hashed each time
        with contextlib.suppress(OSError):
            _replace(self._notes_path(commit), json.dumps({**self._notes(commit), **more}))

    def _notes_path(self, commit: str) -> Path:
        return self.folder / "jmm" / f"{commit}.json"


def _blob_name(path: Path) -> str:
    """What the cache names the file by, where it lies there as a link."""
    return os.path.basename(os.path.realpath(path)) if os.path.islink(path) else ""


def hash_file(path: Path, oid: str = "") -> tuple[str, str]:
    """Hashes a file.

    Args:
        path: The file.
        oid: A hash, which tells the kind that is wanted.

    Returns:
        The sha256, and the hash of the kind of ``oid``.
    """
    sha256 = hashlib.sha256()
    git = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            if len(oid) == 40:
                git.update(chunk)
    digest = sha256.hexdigest()
    return digest, git.hexdigest() if len(oid) == 40 else digest


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
