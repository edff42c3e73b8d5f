"""A folder with a converted model: what its ``jmm.json`` says about its files.

Example of one::

    {
      "format": 1,
      "model": "text.gguf",
      "mmproj": "mmproj.gguf",
      "adapters": {"retrieval": "adapter-retrieval.gguf"},
      "merged": null,
      "profile": "jina-embeddings-v4",
      "min_pixels": 3136,
      "max_pixels": 602112,
      "dim": 2048,
      "multi_vector_dim": 128,
      "dims": [128, 256, 512, 1024, 2048],
      "source": {"config.json": {"size": 1234, "sha256": "..."}}
    }
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jmm.errors import ModelLoadError

MANIFEST = "jmm.json"
FORMAT = 1


@dataclass(frozen=True)
class Bundle:
    """What an `Embedder` needs to know of such a folder; empty for files.

    Attributes:
        arguments: Of `Embedder`: ``model``, ``mmproj``, ``adapters``, ``profile``,
            ``min_pixels``, ``max_pixels``.
        tasks: The one task whose adapter is merged into the weights; empty for no limit.
        dims: Legal values of ``truncate_dim``; empty for the profile's.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()

    def own(self, name: str, given: Any) -> Any:
        """An argument: the caller's, or the folder's where that is None."""
        return self.arguments.get(name) if given is None else given


def is_bundle(path: object) -> bool:
    """Whether ``path`` is a folder with a ``jmm.json``."""
    if not isinstance(path, str | os.PathLike):
        return False
    return os.path.isfile(os.path.join(os.fsdecode(path), MANIFEST))


def open_bundle(folder: str | os.PathLike[str]) -> Bundle:
    """Reads ``jmm.json`` of a folder.

    Args:
        folder: What ``python -m jmm convert`` has written.

    Returns:
        The arguments, with whole paths.

    Raises:
        ModelLoadError: There is none, it is damaged, or it names a file outside the folder.

    Example:
        >>> bundle = open_bundle("jina-v4")  # doctest: +SKIP
        >>> Embedder(**bundle.arguments)  # doctest: +SKIP
    """
    if not is_bundle(folder):
        raise ModelLoadError(
            f"{folder}/{MANIFEST}: there is no such file; a folder that jmm convert has written "
            "has one"
        )
    path = Path(os.fsdecode(folder)) / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: the file cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        version = manifest.get("format") if isinstance(manifest, dict) else None
        raise ModelLoadError(f"{path}: format is {version!r}; {FORMAT} is supported")
    reader = _Reader(path, manifest)
    adapters = reader.get("adapters", dict) or {}
    merged = reader.get("merged", str)
    found = {
        "model": reader.file("model", reader.get("model", str)),
        "mmproj": reader.file("mmproj", reader.get("mmproj", str)),
        "adapters": {task: reader.file("adapters", name) for task, name in adapters.items()}
        or None,
        "profile": reader.get("profile", str),
        "min_pixels": reader.get("min_pixels", int),
        "max_pixels": reader.get("max_pixels", int),
    }
    least, most = found["min_pixels"], found["max_pixels"]
    for key in ("min_pixels", "max_pixels"):
        if found[key] is not None and not 1 <= found[key] < 2**31:
            raise reader.fail(key, "a whole number from 1 to 2**31 - 1 is needed")
    if least is not None and most is not None and least > most:
        raise reader.fail("max_pixels", f"it is below min_pixels, {least}")
    dims = reader.get("dims", list) or []
    if not all(type(dim) is int and dim > 0 for dim in dims):
        raise reader.fail("dims", "a list of whole numbers is needed")
    return Bundle(found, (merged,) if merged else (), tuple(sorted(dims)))


@dataclass(frozen=True)
class _Reader:
    path: Path
    manifest: dict[str, Any]

    def fail(self, key: str, needed: str) -> ModelLoadError:
        return ModelLoadError(f"{self.path}: {key} is {self.manifest.get(key)!r}; {needed}")

    def get(self, key: str, kind: type) -> Any:
        value = self.manifest.get(key)
        if value is not None and type(value) is not kind:
            raise self.fail(key, f"{kind.__name__} or null is needed")
        return value

    def file(self, key: str, name: Any) -> str:
        if not isinstance(name, str) or Path(name).name != name:
            raise self.fail(key, "the name of a file beside it is needed")
        return str(self.path.parent / name)
