"""The files that one model consists of, read and checked before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from jmm import _core, projector
from jmm.errors import InputError
from jmm.gguf_header import Header, check_adapter, check_mmproj, check_readable, check_text

Path: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class ModelFiles:
    """Headers that fit each other.

    Attributes:
        text: Of the language model.
        mmproj: Of the vision tower, None without one.
        adapters: Of the LoRA adapters, by task.
        projectors: The multi-vector projector by task, as the task's adapter leaves it, and
            under None as it is; empty for a model without one.
        fingerprint: Of the vision tower, empty without one.
    """

    text: Header
    mmproj: Header | None = None
    adapters: Mapping[str, Header] = field(default_factory=dict)
    projectors: Mapping[str | None, projector.Projector] = field(default_factory=dict)
    fingerprint: str = ""

    @classmethod
    def read(
        cls,
        model: Path,
        mmproj: Path | None,
        adapters: Mapping[str, Path] | None,
        projector_path: Path | None,
    ) -> ModelFiles:
        """Reads the headers.

        Raises:
            ModelLoadError: A file is missing, damaged, of the wrong kind, or they do not fit.
            InputError: An argument is no path.
        """
        first = read_header(model)
        text = first.joined(read_header(path) for path in first.part_paths())
        check_text(text)
        tower = None if mmproj is None else read_header(mmproj)
        if tower is not None:
            check_mmproj(tower, text)
        loras = _read_adapters(adapters, text)
        if projector_path is None:
            found = projector.find(text, tower)
        else:
            found = projector.read(read_header(projector_path))
        projectors: dict[str | None, projector.Projector] = {}
        if found is not None:
            _check_projector(found, text, projector_path)
            projectors[None] = found
            projectors |= {task: found.adapted(header) for task, header in loras.items()}
        fingerprint = "" if tower is None else tower.fingerprint()
        return cls(text, tower, loras, projectors, fingerprint)

    def n_bytes_beside(self, *, tower: bool) -> int:
        """Bytes of the files beside the language model's, the tower's on request."""
        headers = list(self.adapters.values())
        if tower and self.mmproj is not None:
            headers.append(self.mmproj)
        return sum(os.path.getsize(header.path) for header in headers)

    def n_bytes_text(self) -> int:
        """Bytes of the language model's files."""
        paths = {self.text.path, *self.text.parts.values()}
        return sum(os.path.getsize(path) for path in paths)


def read_header(path: Path) -> Header:
    """Reads the header of a GGUF file.

    Raises:
        ModelLoadError: There is no such file, or it is damaged.
        InputError: It is no path.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise InputError(f"a model is the path of a file, and this is {path!r}") from None
    check_readable(name)
    return Header.of(name, *_core.read_gguf(name))


def _read_adapters(adapters: Mapping[str, Path] | None, text: Header) -> dict[str, Header]:
    if adapters is None:
        return {}
    if not isinstance(adapters, Mapping) or not all(isinstance(task, str) for task in adapters):
        raise InputError(f"adapters is {adapters!r}; a dict from task to path is needed")
    headers = {task: read_header(path) for task, path in adapters.items()}
    for header in headers.values():
        check_adapter(header, text)
    return headers


def _check_projector(found: projector.Projector, text: Header, path: Path | None) -> None:
    n_embd = text.metadata.get(f"{text.architecture}.embedding_length")
    if found.weight.shape[0] != n_embd:
        raise text.fail(
            f"hidden states have {n_embd} numbers, and the projector"
            f"{'' if path is None else f' of {os.fspath(path)}'} takes {found.weight.shape[0]}"
        )
