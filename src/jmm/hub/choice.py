"""Which files of a folder or repo make up one model, by their names.

GGUF repos hold one model in several file types: ``name-Q4_K_M.gguf``, ``name-Q8_0.gguf``, a
vision tower with ``mmproj`` in its name, large files in parts ``-00001-of-00003.gguf``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jmm.errors import InputError, ModelLoadError

_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_FILE_TYPE = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|NVFP\d\w*|BF16|FP?16|FP?32))(?=[-._/]|$)",
    re.IGNORECASE,
)
_TOWER = re.compile(r"mmproj", re.IGNORECASE)
# Importance matrices and adapters are GGUF files too, and no models.
_OTHER = re.compile(r"imatrix|(?:^|[-._/])(?:lora|adapters?)(?=[-._/]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for.

    Attributes:
        file_type: Such as "Q4_K_M", in any case; None where there is one only.
        model: Exact name of the language model's file; None chooses.
        mmproj: Exact name of the tower's file; None chooses, False takes none.
        adapters: Exact names by task.
        projector: Exact name of the multi-vector projector's file.
    """

    file_type: str | None = None
    model: str | None = None
    mmproj: str | Literal[False] | None = None
    adapters: Mapping[str, str] | None = None
    projector: str | None = None

    def __post_init__(self) -> None:
        adapters = self.adapters
        if adapters is not None and not isinstance(adapters, Mapping):
            raise InputError(f"adapters is {adapters!r}; a dict from task to file name is needed")
        names = [self.file_type, self.model, self.mmproj or None, self.projector]
        for name in (*names, *(adapters or {}).values()):
            if name is not None and (not isinstance(name, str) or not name):
                raise InputError(f"{name!r} is no file name; one of the repo's is needed")

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked for, so that a ``jmm.json`` decides."""
        return self == Wanted()


@dataclass(frozen=True)
class Choice:
    """Names of one model's files; of a file in parts, the first."""

    model: str
    mmproj: str | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)
    projector: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """All that must be there, once each, the small ones first."""
        names = [*self.adapters.values(), self.projector, self.mmproj, self.model, *self.parts]
        return list(dict.fromkeys(name for name in names if name is not None))


def file_type(name: str) -> str:
    """The file type that a file's name tells, in capitals; empty if it tells none.

    Example:
        >>> file_type("models/jina-v4-text-retrieval-Q4_K_M.gguf"), file_type("text.gguf")
        ('Q4_K_M', '')
    """
    stem = _PART.sub("", name).removesuffix(".gguf")
    found = _FILE_TYPE.findall(stem)
    return str(found[-1]).upper() if found else ""


def choose(names: Collection[str], wanted: Wanted, where: str) -> Choice:
    """The files of the one model that is meant.

    Args:
        names: Of all files there, with ``/`` between folders.
        wanted: What the caller asks for.
        where: Folder or repo, for messages.

    Raises:
        InputError: Several models, or several towers, are there.
        ModelLoadError: There is none, a named file is missing, or a part of one.

    Example:
        >>> choose(["a-Q8_0.gguf", "a-F16.gguf", "mmproj-F16.gguf"], Wanted("q8_0"), "org/a")
        Choice(model='a-Q8_0.gguf', mmproj='mmproj-F16.gguf', adapters={}, projector=None, parts=())
    """
    adapters = dict(wanted.adapters or {})
    beside = {wanted.projector, *adapters.values()}
    models = [
        name
        for name in names
        if name.lower().endswith(".gguf") and not _OTHER.search(name) and name not in beside
    ]
    towers = sorted(name for name in models if _TOWER.search(name))
    texts = sorted(name for name in models if not _TOWER.search(name) and _part(name) == 1)
    exact = [wanted.model, wanted.mmproj or None, wanted.projector, *adapters.values()]
    for name in exact:
        if name is not None and name not in names:
            raise ModelLoadError(f"{where} has no file {name}; it has {_listed(names)}")
    model = wanted.model or _one("model", texts, wanted.file_type, where)
    if model is None:
        is_checkpoint = any(name.lower().endswith(".safetensors") for name in names)
        hint = "; `jmm convert` makes GGUF files of a checkpoint" if is_checkpoint else ""
        raise ModelLoadError(f"{where} has no GGUF file of a model; it has {_listed(names)}{hint}")
    mmproj = wanted.mmproj
    if mmproj is None:
        same = [name for name in towers if wanted.file_type and _is(name, wanted.file_type)]
        mmproj = _one("mmproj", same or towers, None, where)
    parts = _parts(model, names, where)
    return Choice(model, mmproj or None, adapters, wanted.projector, parts)


def _one(argument: str, names: list[str], wanted: str | None, where: str) -> str | None:
    fitting = [name for name in names if wanted is None or _is(name, wanted)]
    if not names:
        return None
    if len(fitting) == 1:
        return fitting[0]
    types = sorted({file_type(name) for name in names} - {""})
    if not fitting:
        raise ModelLoadError(
            f"{where} has no {argument} of file_type {wanted!r}; it has {_listed(types or names)}"
        )
    by_type = argument == "model" and wanted is None and len(types) == len(names)
    how = f"file_type={types[0]!r}" if by_type else f"{argument}={fitting[0]!r}"
    raise InputError(
        f"{where} has {len(fitting)} files that may be the {argument}: "
        f"{_listed(types if by_type else fitting)}; choose one, as with {how}"
    )


def _is(name: str, wanted: str) -> bool:
    return file_type(name) == wanted.upper()


def _part(name: str) -> int:
    found = _PART.search(name)
    return int(found[1]) if found else 1


def _parts(model: str, names: Collection[str], where: str) -> tuple[str, ...]:
    """All parts of a file in parts."""
    found = _PART.search(model)
    if found is None:
        return ()
    if int(found[1]) != 1:
        raise InputError(f"{model} is a later part of a model; name its first part, -00001-of-")
    stems = (f"-{number:05}-of-{found[2]}" for number in range(1, int(found[2]) + 1))
    parts = tuple(model[: found.start()] + stem + model[found.end() :] for stem in stems)
    for part in parts:
        if part not in names:
            raise ModelLoadError(f"{where} has no file {part}, a part of the model")
    return parts


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:20]
    more = len(names) - len(shown)
    return (", ".join(shown) or "no files") + (f" and {more} more" if more else "")
