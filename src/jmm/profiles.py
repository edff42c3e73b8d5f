"""What each model family expects around its input, as data.

A prompt is a tuple of pieces: `Special` (one special token), plain text, and the slots `TEXT`,
`PICTURE` (one or several in a row) and `CONTENT` (texts and pictures in any order).
Neighbouring plain pieces are joined before they are tokenised, as the reference tokenises the
whole string; only a `Special` of the profile ever becomes a special token, never what a user
typed.

Sources: jina-embeddings-v4's modelling code and model page (prompts, pooling, dims, pixels);
Qwen2-VL's preprocessor_config (pixel limits); gme_inference.py of gme-Qwen2-VL's repository
(prompt, pixels, last token, and a forward call without a grid, by which picture rows count on as
tokens do) and its model card (instruction of a search for pictures); colpali-engine 0.3.18
(ColQwen2 and ColQwen2.5: prompts, ten augmentation tokens) and transformers 5.24's ColQwen2
classes, which prompt otherwise and call the model without a grid, as GME does;
src/models/qwen3_vl_embedding.py of QwenLM/Qwen3-VL-Embedding (default instruction, pixels, last
token), Qwen3-VL's chat template, and the instruction of its README;
google/embeddinggemma-300m's model page (prompts, dims, context);
config_sentence_transformers.json of google/embeddinggemma-2 (the same prompts for texts, none by
default) and transformers 5.24's documentation of it (dims), with 8,192 tokens of context.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jmm.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Metadata: TypeAlias = Mapping[str, Any]
Patches: TypeAlias = "tuple[npt.NDArray[np.float32], int, int]"
Encoded: TypeAlias = "tuple[npt.NDArray[np.float32], int, int, bool]"
Picture: TypeAlias = "Patches | Encoded | Tiled"
Part: TypeAlias = "tuple[str, bool] | tuple[npt.NDArray[np.float32]] | Patches | Encoded"
Pooling: TypeAlias = Literal["mean", "span", "last", "cls"]


@dataclass(frozen=True)
class Special:
    """A special token of the vocabulary, by its text."""

    token: str


@dataclass(frozen=True)
class Slot:
    """Where an item's content goes."""

    kind: Literal["text", "picture", "content"]


@dataclass(frozen=True, eq=False)
class Tile:
    """A part of a picture that a tower takes at once: float32 ``[height, width, 3]``."""

    pixels: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tiled:
    """A picture as tiles, with its family's tokens around them."""

    pieces: tuple[Special | str | Tile, ...]


TEXT = Slot("text")
PICTURE = Slot("picture")
CONTENT = Slot("content")
Prompt: TypeAlias = "tuple[Special | Slot | str, ...]"


@dataclass(frozen=True)
class Profile:
    """One model family.

    Attributes:
        name: What `Embedder(profile=...)` takes.
        query: Prompt of a query, per task.
        document: Prompt of a text document, per task.
        image: Prompt of a picture, or of several that are one document; None for a model
            that reads text alone. The markers around each picture are libmtmd's.
        mixed: Prompt of a document that mixes texts and pictures.
        pooling: Which rows become an item's vector: "mean" of all; "span", as "mean" but of a
            picture alone and one marker on each side of it; "last"; or "cls", the first.
        markers: Special tokens that libmtmd puts around a picture.
        dims: Legal values of ``truncate_dim``, in increasing order; empty for any.
        min_pixels: Least area of a picture after resizing; None to take the file's.
        max_pixels: Greatest area of a picture after resizing; None to take the file's.
        first_pixels: Least and greatest area of a resize that comes before; None without one.
        n_ctx: Most tokens of one item, None for what the model was trained with.
        add_special: Whether an item gets the begin and end tokens that its vocabulary wants.
        normalization: Unicode form that the reference tokenizer brings text to.
        in_order: Whether a picture's rows have positions as tokens have, not those of a grid.
    """

    name: str
    query: Mapping[str, Prompt]
    document: Mapping[str, Prompt]
    image: Prompt | None
    mixed: Prompt | None = None
    pooling: Pooling = "mean"
    markers: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()
    min_pixels: int | None = None
    max_pixels: int | None = None
    first_pixels: tuple[int, int] | None = None
    n_ctx: int | None = None
    add_special: bool = False
    normalization: Literal["NFC"] | None = None
    in_order: bool = False

    @property
    def specials(self) -> tuple[str, ...]:
        """Special tokens of the prompts, each of which the vocabulary must have."""
        prompts = (*self.query.values(), *self.document.values(), self.image, self.mixed)
        pieces = (piece for prompt in prompts for piece in prompt or ())
        inside = (piece.token for piece in pieces if isinstance(piece, Special))
        return tuple(dict.fromkeys((*self.markers, *inside)))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names that ``task`` takes; the first is the default."""
        return tuple(self.query)

    def check_tasks(self, names: Iterable[str]) -> None:
        """Checks that there are prompts for adapters of these names.

        A profile with one task serves any, as its prompts are the same for all.

        Raises:
            InputError: There are none for one of them.
        """
        unknown = [name for name in names if name not in self.tasks]
        if unknown and len(self.tasks) > 1:
            raise InputError(
                f"there is an adapter for {unknown[0]!r}; profile {self.name} has prompts for "
                f"{', '.join(self.tasks)}"
            )

    def text_parts(self, prompt: Prompt, text: str) -> list[Part]:
        """Fills a text prompt."""
        return list(self._fill(prompt, [text]))

    def prefix_parts(self, prompt: Prompt) -> list[Part]:
        """What stands before a prompt's slot, less the space that goes to the content's token."""
        constant = list(takewhile(lambda piece: not isinstance(piece, Slot), prompt))
        if constant and isinstance(constant[-1], str):
            constant[-1] = constant[-1].rstrip()
        return list(self._fill(tuple(constant), []))

    def image_parts(self, *pictures: Picture) -> list[Part]:
        """Fills the picture prompt.

        Args:
            pictures: ``(patches, grid_h, grid_w)`` each, or what `Engine.tokenize` takes in
                their place.

        Raises:
            InputError: The family reads no pictures.
        """
        if self.image is None:
            raise InputError(f"profile {self.name} reads no pictures")
        return list(self._fill(self.image, pictures))

    def mixed_parts(self, pieces: Sequence[str | Picture]) -> list[Part]:
        """Fills the prompt of texts and pictures in one document.

        Raises:
            InputError: The family reads no such documents.
        """
        if self.mixed is None:
            raise InputError(f"profile {self.name} reads no documents of texts and pictures")
        return list(self._fill(self.mixed, pieces))

    def _fill(self, prompt: Prompt, pieces: Sequence[str | Picture]) -> Iterator[Part]:
        plain = ""
        for piece in self._flatten(prompt, pieces):
            if isinstance(piece, str):
                plain += piece
                continue
            if plain:
                yield self._normalize(plain), False
                plain = ""
            yield _part(piece)
        if plain:
            yield self._normalize(plain), False

    def _flatten(
        self, prompt: Prompt, pieces: Sequence[str | Picture]
    ) -> Iterator[Special | str | Tile | Patches | Encoded]:
        for piece in prompt:
            if not isinstance(piece, Slot):
                yield piece
                continue
            for content in pieces:
                if isinstance(content, Tiled):
                    yield from content.pieces
                else:
                    yield content

    def _normalize(self, text: str) -> str:
        return unicodedata.normalize(self.normalization, text) if self.normalization else text

    def pooled_rows(self, n_tokens: int, picture: tuple[int, int] | None = None) -> tuple[int, int]:
        """Rows of a sequence whose mean is the item's vector, stop exclusive.

        Args:
            n_tokens: Rows of the sequence.
            picture: Rows that the pictures of an item of pictures alone fill, stop exclusive.

        Example:
            >>> JINA_V4.pooled_rows(20, picture=(5, 11))
            (4, 12)
        """
        if self.pooling == "last":
            return n_tokens - 1, n_tokens
        if self.pooling == "cls":
            return 0, 1
        if self.pooling == "span" and picture is not None:
            return picture[0] - 1, picture[1] + 1
        return 0, n_tokens


def _part(piece: Special | Tile | Patches | Encoded) -> Part:
    if isinstance(piece, Special):
        return piece.token, True
    if isinstance(piece, Tile):
        return (piece.pixels,)
    return piece


def _same(tasks: Iterable[str], prompt: Prompt) -> dict[str, Prompt]:
    return dict.fromkeys(tasks, prompt)


_QWEN_MARKERS = ("<|vision_start|>", "<|vision_end|>")

JINA_V4 = Profile(
    name="jina-embeddings-v4",
    query=_same(("retrieval", "text-matching", "code"), ("Query: ", TEXT)),
    document={
        "retrieval": ("Passage: ", TEXT),
        "text-matching": ("Query: ", TEXT),
        "code": ("Passage: ", TEXT),
    },
    image=(
        Special("<|im_start|>"),
        "user\n",
        PICTURE,
        "Describe the image.",
        Special("<|im_end|>"),
        "\n",
    ),
    mixed=(Special("<|im_start|>"), "user\n", CONTENT, Special("<|im_end|>"), "\n"),
    pooling="span",
    markers=_QWEN_MARKERS,
    dims=(128, 256, 512, 1024, 2048),
    min_pixels=3136,
    max_pixels=602_112,
    n_ctx=32_768,
    normalization="NFC",
)

QWEN_VL = Profile(
    name="qwen2.5-vl",
    query={"retrieval": (TEXT,)},
    document={"retrieval": (TEXT,)},
    image=(PICTURE,),
    mixed=(CONTENT,),
    markers=_QWEN_MARKERS,
    n_ctx=32_768,
    normalization="NFC",
)

_AUGMENTATION = (Special("<|endoftext|>"),) * 10

COLQWEN2 = Profile(
    name="colqwen2",
    query={"retrieval": (TEXT, *_AUGMENTATION)},
    document={"retrieval": (TEXT,)},
    image=(
        Special("<|im_start|>"),
        "user\n",
        PICTURE,
        "Describe the image.",
        Special("<|im_end|>"),
        Special("<|endoftext|>"),
    ),
    mixed=(
        Special("<|im_start|>"),
        "user\n",
        CONTENT,
        Special("<|im_end|>"),
        Special("<|endoftext|>"),
    ),
    markers=_QWEN_MARKERS,
    min_pixels=3136,
    max_pixels=602_112,
    n_ctx=32_768,
    normalization="NFC",
)

COLQWEN2_5 = replace(COLQWEN2, name="colqwen2.5")

COLQWEN2_HF = replace(
    COLQWEN2,
    name="colqwen2-hf",
    query={"retrieval": ("Query: ", TEXT, *_AUGMENTATION, "\n")},
    in_order=True,
)


def _chat(instruction: str, content: Slot, *end: Special) -> Prompt:
    return (
        Special("<|im_start|>"),
        f"system\n{instruction}",
        Special("<|im_end|>"),
        "\n",
        Special("<|im_start|>"),
        "user\n",
        content,
        Special("<|im_end|>"),
        "\n",
        Special("<|im_start|>"),
        "assistant\n",
        *end,
    )


_GME_INSTRUCTION = "You are a helpful assistant."
_GME_END = Special("<|endoftext|>")

GME_QWEN2_VL = Profile(
    name="gme-qwen2-vl",
    query={
        "retrieval": _chat(_GME_INSTRUCTION, TEXT, _GME_END),
        "text-to-image": _chat("Find an image that matches the given text.", TEXT, _GME_END),
    },
    document=_same(("retrieval", "text-to-image"), _chat(_GME_INSTRUCTION, TEXT, _GME_END)),
    image=_chat(_GME_INSTRUCTION, PICTURE, _GME_END),
    mixed=_chat(_GME_INSTRUCTION, CONTENT, _GME_END),
    pooling="last",
    markers=_QWEN_MARKERS,
    min_pixels=256 * 28 * 28,
    max_pixels=1280 * 28 * 28,
    first_pixels=(4 * 28 * 28, 16_384 * 28 * 28),
    n_ctx=32_768,
    normalization="NFC",
    in_order=True,
)

QWEN3_VL = replace(QWEN_VL, name="qwen3-vl")

_QWEN3_INSTRUCTION = "Represent the user's input."
_QWEN3_QUESTION = "Retrieve images or text relevant to the user's query."

QWEN3_VL_EMBEDDING = Profile(
    name="qwen3-vl-embedding",
    query={
        "retrieval": _chat(_QWEN3_QUESTION, TEXT),
        "text-matching": _chat(_QWEN3_INSTRUCTION, TEXT),
    },
    document=_same(("retrieval", "text-matching"), _chat(_QWEN3_INSTRUCTION, TEXT)),
    image=_chat(_QWEN3_INSTRUCTION, PICTURE),
    mixed=_chat(_QWEN3_INSTRUCTION, CONTENT),
    pooling="last",
    markers=_QWEN_MARKERS,
    min_pixels=4 * 32 * 32,
    max_pixels=1800 * 32 * 32,
    n_ctx=32_768,
    add_special=True,
    normalization="NFC",
)

_EMBEDDINGGEMMA_TASKS = {
    "retrieval": "search result",
    "question-answering": "question answering",
    "fact-checking": "fact checking",
    "code": "code retrieval",
    "classification": "classification",
    "clustering": "clustering",
    "similarity": "sentence similarity",
}
_SYMMETRIC = ("classification", "clustering", "similarity")
_EMBEDDINGGEMMA_QUERY: dict[str, Prompt] = {
    task: (f"task: {words} | query: ", TEXT) for task, words in _EMBEDDINGGEMMA_TASKS.items()
}

EMBEDDINGGEMMA = Profile(
    name="embeddinggemma",
    query=_EMBEDDINGGEMMA_QUERY,
    document=_same(_EMBEDDINGGEMMA_TASKS, ("title: none | text: ", TEXT))
    | {task: _EMBEDDINGGEMMA_QUERY[task] for task in _SYMMETRIC},
    image=None,
    dims=(128, 256, 512, 768),
    n_ctx=2048,
    add_special=True,
)

EMBEDDINGGEMMA2 = replace(
    EMBEDDINGGEMMA,
    name="embeddinggemma2",
    image=(PICTURE,),
    mixed=(CONTENT,),
    n_ctx=8192,
)

PLAIN_TEXT = Profile(
    name="text",
    query={"retrieval": (TEXT,)},
    document={"retrieval": (TEXT,)},
    image=(PICTURE,),
    mixed=(CONTENT,),
    add_special=True,
)

# Families of llama.cpp's other language models: a picture is the tokens around its tiles.
GEMMA3 = replace(PLAIN_TEXT, name="gemma3")
IDEFICS3 = replace(PLAIN_TEXT, name="idefics3")
LLAVA = replace(PLAIN_TEXT, name="llava")
INTERNVL = replace(PLAIN_TEXT, name="internvl")

PROFILES = {
    profile.name: profile
    for profile in (
        JINA_V4,
        QWEN_VL,
        COLQWEN2,
        COLQWEN2_5,
        COLQWEN2_HF,
        GME_QWEN2_VL,
        QWEN3_VL,
        QWEN3_VL_EMBEDDING,
        EMBEDDINGGEMMA,
        EMBEDDINGGEMMA2,
        GEMMA3,
        IDEFICS3,
        LLAVA,
        INTERNVL,
        PLAIN_TEXT,
    )
}

# The first that a model's name contains decides.
_BY_NAME = (
    ("jina-embeddings-v4", JINA_V4),
    ("gme-qwen2-vl", GME_QWEN2_VL),
    ("colqwen2.5", COLQWEN2_5),
    ("colqwen2-5", COLQWEN2_5),
    ("colqwen2", COLQWEN2),
    ("qwen3-vl-embedding", QWEN3_VL_EMBEDDING),
)
_BY_ARCHITECTURE = {
    "qwen2vl": QWEN_VL,
    "qwen3vl": QWEN3_VL,
    "gemma-embedding": EMBEDDINGGEMMA,
    "gemma-embedding2": EMBEDDINGGEMMA2,
}
_BY_TOWER = {"gemma3": GEMMA3, "idefics3": IDEFICS3, "mlp": LLAVA, "internvl": INTERNVL}

# llama.h's enum llama_pooling_type, which converters write; others are no pooling of rows.
_POOLING_TYPES: Mapping[object, Pooling] = {1: "mean", 2: "cls", 3: "last"}


@dataclass(frozen=True)
class Choice:
    """A profile and why it was taken."""

    profile: Profile
    reason: str = field(compare=False)


def by_name(name: str) -> Profile | None:
    """The profile of a model of that name, None where it tells none.

    Example:
        >>> by_name("Alibaba-NLP/gme-Qwen2-VL-2B-Instruct").name
        'gme-qwen2-vl'
    """
    plain = name.lower().replace("_", "-").replace(" ", "-")
    return next((profile for part, profile in _BY_NAME if part in plain), None)


def choose(metadata: Metadata, name: str | None = None, tower: str | None = None) -> Choice:
    """Picks the profile of a model.

    Args:
        metadata: Of the text GGUF: ``{key: value}``.
        name: A profile's name, which decides alone.
        tower: Kind of the vision tower's projector, None without a tower.

    Returns:
        The profile, with the reason in a few words.

    Raises:
        InputError: There is no profile of that name.

    Example:
        >>> choose({"general.architecture": "qwen2vl"}).profile.name
        'qwen2.5-vl'
    """
    if name is not None:
        return Choice(_named(name, "profile"), "asked for by name")
    written = metadata.get("jmm.profile")
    if isinstance(written, str):
        return Choice(_named(written, "jmm.profile of the model"), "jmm.profile in the model file")
    for key in ("general.name", "general.basename", "general.finetune"):
        named = by_name(str(metadata.get(key, "")))
        if named is not None:
            return Choice(named, f"{key} is {metadata[key]!r}")
    architecture = metadata.get("general.architecture")
    if architecture in _BY_ARCHITECTURE:
        profile = _BY_ARCHITECTURE[architecture]
        return Choice(profile, f"general.architecture is {architecture!r}")
    profile, reason = PLAIN_TEXT, f"no other profile is known for architecture {architecture!r}"
    if tower in _BY_TOWER:
        profile, reason = _BY_TOWER[tower], f"the vision tower is of kind {tower!r}"
    pooling = _POOLING_TYPES.get(metadata.get(f"{architecture}.pooling_type"), profile.pooling)
    return Choice(
        profile if pooling == profile.pooling else replace(profile, pooling=pooling), reason
    )


def choose_vision(metadata: Metadata, name: str | None = None) -> Choice:
    """Picks the profile that limits the pictures of a vision tower without a language model.

    Args:
        metadata: Of the mmproj GGUF: ``{key: value}``.
        name: A profile's name, which decides alone.

    Raises:
        InputError: There is no profile of that name.
    """
    choice = choose(metadata, name)
    if name is None and choice.profile.name == PLAIN_TEXT.name:
        return Choice(QWEN_VL, "no other profile is known for the vision tower")
    return choice


def _named(name: str, what: str) -> Profile:
    if not isinstance(name, str) or name not in PROFILES:
        raise InputError(f"{what} is {name!r}; known profiles are {', '.join(PROFILES)}")
    return PROFILES[name]
