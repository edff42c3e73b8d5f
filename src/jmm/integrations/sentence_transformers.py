"""A module for `SentenceTransformer` (extra ``sentence-transformers``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jmm.embedder import Embedder
from jmm.errors import InputError
from jmm.extras import missing

try:
    import torch
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise missing("sentence-transformers", "jmm.integrations.sentence_transformers") from error


class JmmModule(InputModule):
    """An Embedder as the one module of a SentenceTransformer; a str is a text, never a path.

    Args are ``model`` and ``mmproj`` of `Embedder`, and ``options``, the others.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> model = SentenceTransformer(modules=[JmmModule()], device="cpu")
        >>> model.encode_query(["a red circle"]).shape
        (1, 256)
    """

    config_keys: ClassVar[list[str]] = ["model", "mmproj", "options"]
    forward_kwargs: ClassVar[set[str]] = {"task"}
    modalities: ClassVar[list[str]] = ["text", "image"]

    def __init__(self, model: Any = None, mmproj: Any = None, options: Any = None) -> None:
        super().__init__()
        self.model, self.mmproj, self.options = model, mmproj, options
        self.embedder = Embedder(model, mmproj, **(options or {}))

    def get_embedding_dimension(self) -> int:
        """Components of a vector."""
        return self.embedder.dim

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """The inputs as they are: the model's profile has its own prompts."""
        if prompt:
            raise InputError(f"prompt is {prompt!r}; the prompts are those of the model's profile")
        return {"inputs": list(inputs)}

    def forward(self, features: dict[str, Any], task: str | None = None) -> dict[str, Any]:
        """Adds "sentence_embedding", float32 ``[n, dim]`` on the CPU."""
        embed = self.embedder.encode_query if task == "query" else self.embedder.encode_document
        return {**features, "sentence_embedding": torch.from_numpy(embed(features["inputs"]))}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Writes the arguments as JSON, not the model's files."""
        self.save_config(output_path)
