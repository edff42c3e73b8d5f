"""Names for what decides vectors, so that stored ones are compared with their own kind alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmm.files import ModelFiles
    from jmm.profiles import Profile

VECTORS = 1
"""Raised with every change of jmm, its patches or llama.cpp by which a component of a unit vector
may move by more than 2e-6 with weights in F32."""


def vector_fingerprint(
    files: ModelFiles, profile: Profile, settings: Mapping[str, object], version: int = VECTORS
) -> str:
    """16 hexadecimal digits that change when vectors may.

    Vectors under one fingerprint, of the same task and options of a call, can be compared. Limits
    that only refuse items (``n_ctx``) do not count, nor does where the files lie.

    Args:
        files: Of the model.
        profile: Its prompts, pooling and pixel limits count, not its name.
        settings: By name, what else moves vectors.
        version: Of jmm's computation.

    Returns:
        The fingerprint.
    """
    digest = hashlib.blake2b(digest_size=8)

    def add(name: str, value: object) -> None:
        digest.update(f"{name}={value!r}\n".encode())

    add("vectors", version)
    add("model", files.text.fingerprint())
    add("mmproj", files.fingerprint)
    for task in sorted(files.adapters):
        add(f"adapter for {task}", files.adapters[task].fingerprint())
    projector = files.projectors.get(None)
    if projector is not None:
        digest.update(projector.weight.tobytes() + projector.bias.tobytes())
    add("profile", replace(profile, name="", dims=(), n_ctx=None))
    for name in sorted(settings):
        add(name, settings[name])
    return digest.hexdigest()
