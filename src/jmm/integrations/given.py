"""What the adapters are given."""

from __future__ import annotations

from jmm.embedder import Embedder
from jmm.errors import InputError


def checked(embedder: Embedder) -> Embedder:
    """The embedder itself.

    Raises:
        InputError: It is something else, such as the path of a model.
    """
    if not isinstance(embedder, Embedder):
        raise InputError(f"{embedder!r} given; an Embedder is needed, as in Embedder({embedder!r})")
    return embedder
