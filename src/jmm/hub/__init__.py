"""Models by the name of a repo, through huggingface_hub (extra ``hub``)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jmm import bundle as bundles
from jmm.errors import InputError, ModelLoadError
from jmm.hub.cache import Entry, Storage
from jmm.hub.choice import Choice, Wanted, choose
from jmm.hub.remote import Remote

__all__ = ["Pretrained", "Wanted", "fetch"]

BRANCH = "main"


@dataclass(frozen=True)
class Pretrained:
    """Where a model came from, and what its `Embedder` is made with.

    Attributes:
        arguments: ``model``, ``mmproj``, ``adapters`` and ``projector`` of `Embedder`.
        repo: ``org/name``; None for a folder.
        revision: The commit; None for a folder.
        sha256: ``{file name: sha256}``; empty for a folder.
        keywords: Of `Embedder.from_pretrained` for the same files again, without the token.
    """

    arguments: Mapping[str, Any]
    repo: str | None = None
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)


def fetch(
    repo: str | os.PathLike[str],
    wanted: Wanted,
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    local_files_only: bool = False,
    token: str | bool | None = None,
    show_progress: bool | None = None,
) -> Pretrained:
    """Puts the files of one model into the cache, those that are not there, and checks them.

    Args:
        repo: ``org/name``, or a folder.
        wanted: Which of its files.
        revision: Branch, tag or commit; None for the branch "main".
        cache_dir: The cache; None for huggingface_hub's own.
        local_files_only: True uses the cache alone.
        token: A str, False for none, None for the one that is saved or in the environment.
        show_progress: True draws a progress bar per file on stderr.

    Returns:
        The arguments of `Embedder`, the commit and the hashes.

    Raises:
        InputError: The name is none, or several models are there and none is chosen.
        ModelLoadError: A file cannot be had, or is not what the commit says.
        MissingExtraError: huggingface_hub is not installed.
    """
    try:
        name = os.fsdecode(repo)
    except TypeError:
        raise InputError(f"{repo!r} is neither a folder nor the name of a repo") from None
    if isinstance(repo, os.PathLike) or os.path.isdir(name):
        return _of_folder(Path(name), wanted, revision)
    if os.path.isfile(name):
        raise InputError(f"{name} is a file; pass it to Embedder(), which loads files")
    remote = Remote.of(
        name, revision or BRANCH, token, cache_dir, local_files_only=local_files_only
    )
    storage = remote.storage
    commit, entries = _listing(remote, storage, revision or BRANCH)
    sha256: dict[str, str] = {}
    again = {
        "repo": name,
        "revision": commit,
        **vars(wanted),
        "cache_dir": cache_dir,
        "local_files_only": local_files_only,
        "show_progress": show_progress,
    }

    def get(file: str) -> None:
        entry = entries.get(file)
        if entry is None:
            raise ModelLoadError(f"{name}: revision {commit} has no file {file}")
        if not os.path.exists(storage.path(commit, file)):
            if remote.is_offline:
                raise ModelLoadError(
                    f"{name}: {file} of revision {commit} is not in the cache {storage.folder}, "
                    "and nothing may be loaded: offline"
                )
            remote.load(commit, file, entry, show_progress=bool(show_progress))
        sha256[file] = storage.check(commit, file, entry)

    folder = storage.path(commit, "")
    if wanted.is_open and bundles.MANIFEST in entries:
        get(bundles.MANIFEST)
        for file in _files_of(folder, entries, name):
            get(file)
        return Pretrained({"model": str(folder)}, name, commit, sha256, again)
    _refuse_for_bundle(wanted, entries, name)
    choice = choose(entries, wanted, f"{name} at {commit[:12]}")
    for file in choice.files:
        get(file)
    return Pretrained(_arguments(folder, choice), name, commit, sha256, again)


def _of_folder(folder: Path, wanted: Wanted, revision: str | None) -> Pretrained:
    if revision is not None:
        raise InputError(f"{folder} is a folder, which has no revision")
    if not os.path.isdir(folder):
        raise ModelLoadError(f"{folder}: there is no such folder")
    try:
        os.listdir(folder)
    except OSError as error:  # of which `glob` says nothing
        raise ModelLoadError(f"{folder}: the folder cannot be read: {error.strerror}") from None
    paths = [*folder.glob("*"), *folder.glob("*/*")]
    names = [path.relative_to(folder).as_posix() for path in paths if os.path.isfile(path)]
    if wanted.is_open and bundles.MANIFEST in names:
        return Pretrained({"model": str(folder)})
    _refuse_for_bundle(wanted, names, str(folder))
    return Pretrained(_arguments(folder, choose(names, wanted, str(folder))))


def _listing(remote: Remote, storage: Storage, revision: str) -> tuple[str, Mapping[str, Entry]]:
    """The commit and its files: from the cache where nothing may or need be asked."""
    known = storage.commit(revision)
    if known is not None and (remote.is_offline or known == revision):
        entries = storage.entries(known)
        if entries is None and remote.is_offline:
            entries = storage.cached_entries(known)
        if entries:
            return known, entries
    if remote.is_offline:
        raise ModelLoadError(
            f"{remote.repo}: revision {revision} is not in the cache {storage.folder}, and "
            "nothing may be loaded: offline"
        )
    commit, listed = remote.listing(revision)
    if storage.entries(commit) is None:
        storage.note_entries(commit, listed)
    storage.note_commit(revision, commit)
    return commit, listed


def _files_of(folder: Path, entries: Mapping[str, Entry], where: str) -> list[str]:
    """The files that a ``jmm.json`` names."""
    arguments = bundles.open_bundle(folder).arguments
    adapters = {task: Path(path).name for task, path in (arguments["adapters"] or {}).items()}
    mmproj = arguments["mmproj"]
    exact = Wanted(
        model=Path(arguments["model"]).name,
        mmproj=Path(mmproj).name if mmproj else False,
        adapters=adapters,
    )
    return choose(entries, exact, where).files


def _refuse_for_bundle(wanted: Wanted, names: Collection[str], where: str) -> None:
    if bundles.MANIFEST in names and wanted.model is None:
        raise InputError(
            f"{where} has a {bundles.MANIFEST}, which names its files; give no file_type, mmproj, "
            "adapters or projector, or model= too"
        )


def _arguments(folder: Path, choice: Choice) -> dict[str, Any]:
    def path(name: str | None) -> str | None:
        return None if name is None else str(folder / name)

    return {
        "model": path(choice.model),
        "mmproj": path(choice.mmproj),
        "adapters": {task: path(name) for task, name in choice.adapters.items()} or None,
        "projector": path(choice.projector),
    }
