"""How items of each kind become sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from jmm import arguments
from jmm.errors import InputError
from jmm.pictures import Reader, is_picture
from jmm.profiles import Part, Picture, Profile, Prompt

# Threads that read and cut the next pictures while others run.
READER_THREADS = 2


class Sequence(Protocol):
    """A tokenised item: `_core.Sequence`."""

    n_tokens: int
    n_cells: int
    n_whole: int
    picture_span: tuple[int, int] | None


class Tokenizer(Protocol):
    """What makes sequences: `_core.Engine`."""

    def tokenize(
        self,
        parts: list[Part],
        *,
        add_special: bool = False,
        prefix: Sequence_[int] = (),
        in_order: bool = False,
    ) -> Any:
        """Makes one sequence."""


class Item(NamedTuple):
    """A sequence, and the rows of it that are pooled: start and stop."""

    sequence: Sequence
    span: tuple[int, int]


@dataclass(frozen=True)
class Kind:
    """The three steps from an item to a sequence.

    Attributes:
        take: Called with an item as soon as it is there, in the caller's thread.
        read: Called with what ``take`` returned, maybe in another thread.
        place: Called with what ``read`` returned, in the caller's thread.
        n_threads: Threads that read; 0 where reading is next to nothing.
    """

    take: Callable[[Any], Any]
    read: Callable[[Any], Any]
    place: Callable[[Any], Item]
    n_threads: int = 0

    def of_part(self, picker: Callable[[Any], Any] | None) -> Kind:
        """The same of the part that ``picker`` takes of each item; None for the whole."""
        if picker is None:
            return self
        return replace(self, take=lambda item: self.take(picker(item)))


@dataclass(frozen=True)
class Kinds:
    """The kinds of items that one model reads; each method takes the task.

    Attributes:
        tokenizer: Makes the sequences.
        profile: Prompts, and which rows are pooled.
        reader: Reads pictures.
        reads_pictures: Whether the model does.
    """

    tokenizer: Tokenizer
    profile: Profile
    reader: Reader
    reads_pictures: bool

    def picture(self, _task: str) -> Kind:
        """Pictures as `Embedder.encode_images` takes them."""
        return Kind(self.reader.take, self.reader, self.place_pictures, READER_THREADS)

    def patch(self, _task: str) -> Kind:
        """Pictures as `arguments.split_patches` cuts them apart."""
        return Kind(_as_it_is, _checked_patches, self.place_pictures)

    def query(self, task: str) -> Kind:
        """Texts that ask."""
        prompt = self._prompt(self.profile.query, task)
        prefix = self._prefix(prompt)
        return Kind(_as_it_is, arguments.text, lambda text: self._place_text(prompt, prefix, text))

    def document(self, task: str) -> Kind:
        """Texts, pictures, and lists of both."""
        prompt = self._prompt(self.profile.document, task)
        prefix = self._prefix(prompt)

        def place(item: Any) -> Item:
            if isinstance(item, str):
                return self._place_text(prompt, prefix, item)
            if isinstance(item, list):
                return self._place_pieces(prompt, prefix, item)
            return self.place_pictures(item)

        n_threads = READER_THREADS if self.reads_pictures else 0
        return Kind(self._take_piece, self._read_piece, place, n_threads)

    def named(self, kind: str) -> Callable[[str], Kind]:
        """The method of a kind by the name that `Embedder.encode_iter` takes.

        Raises:
            InputError: There is no such kind, or the model cannot read it.
        """
        methods = {"document": self.document, "image": self.picture, "query": self.query}
        if not isinstance(kind, str) or kind not in methods:
            raise InputError(f"kind is {kind!r}; allowed are {', '.join(map(repr, methods))}")
        if kind == "image":
            self.require_vision()
        return methods[kind]

    def require_vision(self) -> None:
        """Raises InputError unless the model reads pictures."""
        if not self.reads_pictures:
            raise InputError(
                "the model reads no pictures: it was loaded without a vision tower; "
                "pass mmproj= to embed pictures"
            )

    def place_pictures(self, *pictures: Picture) -> Item:
        """Pictures that are one item, in the picture prompt."""
        sequence = self._tokenize(self.profile.image_parts(*pictures))
        return Item(sequence, self.profile.pooled_rows(sequence.n_tokens, sequence.picture_span))

    def _take_piece(self, piece: Any) -> Any:
        if isinstance(piece, list | tuple):
            return [self._take_piece(part) for part in piece]
        return self.reader.take(piece) if self._is_picture(piece) else piece

    def _read_piece(self, piece: Any) -> Any:
        if isinstance(piece, list):
            if any(isinstance(part, list) for part in piece):
                raise InputError("a document is a list of texts and pictures, not of lists")
            return [self._read_piece(part) for part in piece]
        return self.reader(piece) if self._is_picture(piece) else arguments.text(piece)

    def _is_picture(self, piece: Any) -> bool:
        if not is_picture(piece, str_is_path=False):
            return False
        self.require_vision()
        return True

    def _prefix(self, prompt: Prompt) -> list[int]:
        """Tokens that every text of the prompt begins with, unless its own change them."""
        parts = self.profile.prefix_parts(prompt)
        return self.tokenizer.tokenize(parts).token_ids() if parts else []

    def _place_text(self, prompt: Prompt, prefix: list[int], text: str) -> Item:
        parts = self.profile.text_parts(prompt, text)
        return self._pooled(self._tokenize(parts, prefix))

    def _place_pieces(self, prompt: Prompt, prefix: list[int], pieces: list[str | Picture]) -> Item:
        """One document of several pieces; of one sort alone, it has the prompt of that."""
        if not pieces:
            raise InputError("the document is an empty list; it needs a text or a picture")
        pictures = [piece for piece in pieces if not isinstance(piece, str)]
        if len(pictures) == len(pieces):
            return self.place_pictures(*pictures)
        if not pictures:
            return self._place_text(prompt, prefix, "".join(map(str, pieces)))
        return self._pooled(self._tokenize(self.profile.mixed_parts(pieces)))

    def _tokenize(self, parts: list[Part], prefix: Sequence_[int] = ()) -> Any:
        profile = self.profile
        return self.tokenizer.tokenize(
            parts, add_special=profile.add_special, prefix=prefix, in_order=profile.in_order
        )

    def _pooled(self, sequence: Sequence) -> Item:
        return Item(sequence, self.profile.pooled_rows(sequence.n_tokens))

    def _prompt(self, prompts: Mapping[str, Prompt], task: str) -> Prompt:
        return prompts.get(task) or prompts[self.profile.tasks[0]]


def _as_it_is(item: Any) -> Any:
    return item


def _checked_patches(item: arguments.PatchItem) -> Picture:
    _, (_, grid_h, grid_w) = item
    return arguments.check_patches(item), int(grid_h), int(grid_w)
