"""Everything that goes over the network, through huggingface_hub's session and tokens."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jmm.errors import InputError, JmmError, ModelLoadError
from jmm.extras import needed
from jmm.hub.cache import COMMIT, Entry, Storage, hash_file
from jmm.progress import progress_bar

# Failures in a row without a byte in between.
RETRIES = 3
_PAUSE_S = 1.0
_CHUNK = 1 << 20
_LONGEST_NAME = 255  # bytes, of most file systems
_ID = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*")

_logger = logging.getLogger("jmm")


def client(name: str = "huggingface_hub") -> Any:
    """huggingface_hub, or one of its modules.

    Raises:
        MissingExtraError: It is not installed.
    """
    return needed(name, "a model by the name of its repo")


@dataclass(frozen=True)
class Remote:
    """One repo as a server offers it.

    Attributes:
        repo: ``org/name``.
        token: As huggingface_hub takes it: a str, False for none, None for the saved one.
        cache_dir: The cache; None for huggingface_hub's own.
        is_offline: Nothing may go over the network.
    """

    repo: str
    token: str | bool | None = None
    cache_dir: Path | None = None
    is_offline: bool = False

    @classmethod
    def of(
        cls,
        repo: str,
        revision: str,
        token: str | bool | None,
        cache_dir: str | os.PathLike[str] | None,
        *,
        local_files_only: bool,
    ) -> Remote:
        """Checks the names, which become parts of paths and addresses.

        Raises:
            InputError: ``repo`` or ``revision`` is none.
            MissingExtraError: huggingface_hub is not installed.
        """
        if not _ID.fullmatch(repo) or ".." in repo or "--" in repo or repo.endswith(".git"):
            raise InputError(f"{repo!r} is neither a folder nor the name of a repo, org/name")
        if not isinstance(revision, str) or not _REVISION.fullmatch(revision):
            raise InputError(f"revision is {revision!r}; a branch, a tag or a commit is needed")
        constants = client("huggingface_hub.constants")
        try:
            given = os.fsdecode(cache_dir or constants.HF_HUB_CACHE)
        except TypeError:
            raise InputError(
                f"cache_dir is {cache_dir!r}; the path of a folder is needed"
            ) from None
        folder = Path(os.path.expanduser(given))
        return cls(repo, token, folder, local_files_only or bool(constants.HF_HUB_OFFLINE))

    @property
    def storage(self) -> Storage:
        """Where its files are kept."""
        folder = self.cache_dir or Path(client("huggingface_hub.constants").HF_HUB_CACHE)
        return Storage(folder / f"models--{self.repo.replace('/', '--')}")

    def listing(self, revision: str) -> tuple[str, dict[str, Entry]]:
        """The commit that ``revision`` stands for, and its files.

        Raises:
            ModelLoadError: The server cannot be reached, or refuses, or has no such repo.
        """
        with self._errors(revision):
            found = (
                client()
                .HfApi(library_name="jmm")
                .model_info(
                    self.repo, revision=revision, files_metadata=True, token=self.token, timeout=30
                )
            )
        commit, entries = found.sha, {}
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise ModelLoadError(f"{self.repo}: the server names {commit!r} as the commit")
        for file in found.siblings or ():
            if is_plain(file.rfilename):
                oid = file.lfs.sha256 if file.lfs else file.blob_id
                entries[file.rfilename] = Entry.of(file.size, oid)
        return commit, entries

    def load(self, commit: str, name: str, entry: Entry, *, show_progress: bool) -> None:
        """Puts a file into the cache, from where an earlier try stopped.

        Raises:
            ModelLoadError: It cannot be had, or is not what the commit says.
        """
        with self._errors(commit, name):
            if entry.sha256 and entry.size is not None:
                self._load_blob(commit, name, entry.sha256, entry.size, show_progress)
            # finds the blob, or loads a small file, and lays out the rest of the cache
            client().hf_hub_download(
                self.repo,
                name,
                revision=commit,
                cache_dir=self.cache_dir,
                token=self.token,
                library_name="jmm",
                tqdm_class=_silent(),
            )
            if not entry.sha256:
                self._check_small(commit, name, entry)

    def _check_small(self, commit: str, name: str, entry: Entry) -> None:
        path = self.storage.path(commit, name)
        _, found = hash_file(path, entry.oid)
        if entry.oid and found != entry.oid:
            os.unlink(os.path.realpath(path))
            path.unlink(missing_ok=True)
            raise self._damaged(name, entry.oid, found)

    def _load_blob(self, commit: str, name: str, sha256: str, size: int, shown: bool) -> None:
        blob = self.storage.blob(sha256)
        partial = blob.with_name(f"{sha256}.jmm.incomplete")
        blob.parent.mkdir(parents=True, exist_ok=True)
        with _locked(partial) as file:
            if os.path.exists(blob):  # another process has loaded it meanwhile
                partial.unlink(missing_ok=True)
                return
            digest = hashlib.sha256()
            if os.fstat(file.fileno()).st_size > size:
                file.truncate(0)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            missing, free = size - file.tell(), shutil.disk_usage(blob.parent).free
            if missing > free:
                raise ModelLoadError(
                    f"{blob.parent}: {name} needs {missing:,} bytes more and {free:,} are free; "
                    "cache_dir= takes another place"
                )
            with progress_bar(size, shown=shown, unit="B") as advance:
                advance(file.tell())
                self._stream(commit, name, file, size, digest.update, advance)
            file.flush()
            if file.tell() == size and digest.hexdigest() == sha256:
                os.fsync(file.fileno())
                partial.replace(blob)
                return
            partial.unlink()
        raise self._damaged(name, sha256, digest.hexdigest())

    def _damaged(self, name: str, right: str, found: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self.repo}: {name} came damaged: its hash is {found} and {right} is right; it was "
            "thrown away, so that another call tries again"
        )

    def _stream(
        self,
        commit: str,
        name: str,
        file: BinaryIO,
        size: int,
        *taken: Callable[[Any], object],
    ) -> None:
        """Appends what is missing of a file."""
        update, advance = taken
        utils, constants = client("huggingface_hub.utils"), client("huggingface_hub.constants")
        url = client().hf_hub_url(self.repo, name, revision=commit)
        headers = utils.build_hf_headers(token=self.token, library_name="jmm")
        # compressed bytes could not be continued
        headers |= {"Accept-Encoding": "identity"}
        failures = 0
        while file.tell() < size:
            start = file.tell()
            try:
                request = {**headers, "Range": f"bytes={start}-"} if start else headers
                with utils.get_session().stream(
                    "GET", url, headers=request, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
                ) as response:
                    if response.status_code >= 400:
                        response.read()
                    utils.hf_raise_for_status(response)
                    # some servers send a file from its start only
                    skip = start if response.status_code != 206 else 0
                    length, right = response.headers.get("Content-Length"), size - start + skip
                    if length not in (None, str(right)):  # a page of a proxy, for example
                        raise ConnectionError(f"it has {length} bytes and {right} are right")
                    for received in response.iter_raw():
                        chunk = received[skip:]
                        skip -= len(received) - len(chunk)
                        file.write(chunk)
                        update(chunk)
                        advance(len(chunk))
                        if file.tell() > size:
                            return
                if file.tell() < size:
                    raise ConnectionError(f"the connection ended after {file.tell():,} bytes")
            except Exception as error:
                file.flush()
                failures = 0 if file.tell() > start else failures + 1
                if failures >= RETRIES or not _is_passing(error):
                    raise
                _logger.warning("%s: %s; going on at %d bytes", name, error, file.tell())
                time.sleep(_PAUSE_S)

    @contextmanager
    def _errors(self, revision: str, name: str = "") -> Iterator[None]:
        """Turns what the client raises into ModelLoadError."""
        try:
            yield
        except JmmError:
            raise
        except Exception as error:
            what = f"{name} of revision {revision}" if name else f"revision {revision}"
            raise ModelLoadError(f"{self.repo}: {self._why(error, what)}") from error

    def _why(self, error: Exception, what: str) -> str:
        errors = client("huggingface_hub.errors")
        status = getattr(getattr(error, "response", None), "status_code", None)
        token = "the token was refused" if self.token else "token= was not given"
        if isinstance(error, errors.GatedRepoError):
            return f"the repo is gated: its owner has to let you in, and {token}"
        if isinstance(error, errors.RepositoryNotFoundError):
            return f"there is no such repo, or it is private and {token}"
        if isinstance(error, errors.RevisionNotFoundError | errors.EntryNotFoundError) and status:
            return f"it has no {what}"
        if status in (401, 403):
            return f"access to {what} was refused ({status}): {token}"
        if status is not None:
            return f"the server answers {status} for {what}"
        if isinstance(error, OSError) and error.filename:
            return f"{error.filename}: {error.strerror}"
        said = str(error) or type(error).__name__
        return f"{what} cannot be loaded: {said}; local_files_only=True takes what is in the cache"


def is_plain(name: object) -> bool:
    """Whether a name that a server gives leads to a place inside the repo's folder."""
    if not isinstance(name, str) or not name or "\\" in name or not name.isprintable():
        return False
    return all(
        part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME
        for part in name.split("/")
    )


def _is_passing(error: Exception) -> bool:
    """Whether another try may help: the network failed, or the server is busy."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return status in (408, 429, 500, 502, 503, 504)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return False
    return not isinstance(error, client("huggingface_hub.errors").OfflineModeIsEnabled)


def _silent() -> Any:
    from tqdm import tqdm

    class Silent(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """A file to append to, which one process has at a time."""
    while True:
        with path.open("a+b") as file:
            # not every system can lock; the hash tells if two processes wrote at once
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same(file, path):  # its last owner has finished or removed it
                continue
            file.seek(0)
            yield file
            return


def _is_same(file: BinaryIO, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
