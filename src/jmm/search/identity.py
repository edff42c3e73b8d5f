"""Which model an index belongs to, and how to load that model again."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from jmm import demo
from jmm.embedder import Embedder
from jmm.errors import InputError, ModelLoadError
from jmm.files import read_header
from jmm.fingerprint import VECTORS

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILES = ("model", "mmproj", "projector")
_SETTINGS = ("task", "profile", "n_ctx", "min_pixels", "max_pixels", "reference_modes", "f16_kv")


@dataclass(frozen=True)
class Identity:
    """What decides a model's vectors, and where its files were.

    Attributes:
        files: Absolute paths of the model's files; none for the built-in model.
        adapters: Of the adapters, by task.
        fingerprints: Of all these files by their role; see `Header.fingerprint`.
        settings: As `Embedder` takes them.
        dim: Components of a vector.
        multi_vector_dim: Components of a token's vector, None without them.
        vectors: Version of jmm's computation; see `fingerprint.VECTORS`.
    """

    files: Mapping[str, str]
    adapters: Mapping[str, str]
    fingerprints: Mapping[str, str]
    settings: Mapping[str, Any]
    dim: int
    multi_vector_dim: int | None = field(default=None)
    vectors: int = VECTORS

    @classmethod
    def of(cls, embedder: Embedder) -> Identity:
        """Of a loaded model.

        Example:
            >>> with Embedder() as embedder:
            ...     Identity.of(embedder).files
            {}
        """
        info = embedder.info
        settings = {**info, "f16_kv": info["kv_cache"] == "f16"}
        paths = _absolute({role: info[role] for role in _FILES})
        adapters = _absolute(cast("Mapping[str, Any]", info["adapters"]))
        built_in = dict(zip(("model", "mmproj"), map(os.path.abspath, demo.paths()), strict=True))
        files = paths
        if all(paths.get(role) == path for role, path in built_in.items()):
            files = {role: path for role, path in paths.items() if role not in built_in}
        paths = {**paths, **{f"adapter for {task}": path for task, path in adapters.items()}}
        return cls(
            files,
            adapters,
            {role: _fingerprint(path) for role, path in paths.items()},
            {name: settings[name] for name in _SETTINGS},
            embedder.dim,
            embedder.multi_vector_dim,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Identity:
        """What `to_json` gave, this version's or an earlier one's."""
        return cls(**{**fields, "settings": {"f16_kv": False, **fields["settings"]}})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def load(self, given: Mapping[str, Any]) -> Embedder:
        """Loads the model.

        Args:
            given: Arguments of `Embedder` that take the place of the recorded ones. With
                "model", no file of the recorded model is used.

        Raises:
            ModelLoadError: A file is not where it was, or is damaged.
        """
        files: dict[str, Any] = {**self.files, "adapters": self.adapters or None}
        if "model" in given:
            files = {}
        try:
            return Embedder(**{**files, **self.settings, **given})
        except ModelLoadError as error:
            if "model" in given or not self.files:
                raise
            raise ModelLoadError(
                f"{error.message}; the index was made with {', '.join(self.files.values())}: if "
                "they lie elsewhere now, pass model=, and mmproj= if there is one"
            ) from None

    def check(self, other: Identity) -> None:
        """Compares with the model that is to be used.

        Raises:
            InputError: Its vectors are others; the message tells in what it differs.
        """
        differences = [
            f"{name}: {_shown(mine)} in the index, {_shown(theirs)} here"
            for name, mine, theirs in self._pairs(other)
            if mine != theirs
        ]
        if differences:
            raise InputError(
                "the index was made by another model or with other settings, whose vectors do not "
                f"mix ({'; '.join(differences)}); use that model, or a new folder"
            )

    def _pairs(self, other: Identity) -> list[tuple[str, Any, Any]]:
        pairs: list[tuple[str, Any, Any]] = []
        for role in {**self.fingerprints, **other.fingerprints}:
            prints = self.fingerprints.get(role), other.fingerprints.get(role)
            if prints[0] != prints[1]:
                pairs.append((role, self._named(role), other._named(role)))
        pairs += [(name, self.settings[name], other.settings[name]) for name in _SETTINGS]
        pairs.append(("dim", self.dim, other.dim))
        pairs.append(("multi_vector_dim", self.multi_vector_dim, other.multi_vector_dim))
        pairs.append(("jmm's version of vectors", self.vectors, other.vectors))
        return pairs

    def _named(self, role: str) -> str | None:
        if role not in self.fingerprints:
            return None
        path = self.files.get(role) or self.adapters.get(role.removeprefix("adapter for "))
        name = "built-in" if path is None else os.path.basename(path)
        return f"{name} ({self.fingerprints[role]})"


def _absolute(paths: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: os.path.abspath(os.fsdecode(path)) for name, path in paths.items() if path is not None
    }


def _fingerprint(path: str) -> str:
    first = read_header(path)
    return first.joined(map(read_header, first.part_paths())).fingerprint()


def _shown(value: object) -> object:
    return "none" if value is None else value
