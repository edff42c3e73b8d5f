"""Streams: order, bounds, errors with their index, threads that end."""

from __future__ import annotations

import io
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

import exactness
from jmm import ContextOverflowError, Embedder, InputError
from jmm.pictures import Reader
from jmm.pipeline import Pipeline
from subprocess_case import run
from support import sanitizer, tiny

PICTURES = [tiny.pixels(56 + 14 * (i % 5), 70 + 28 * (i % 3), i) for i in range(12)]
TEXTS = [f"text number {i} " * (1 + i % 7) for i in range(40)]
# What the docstring states.
MOST_AHEAD = 320
PAGE_TOKENS = 8
Iterable = Callable[[int], Iterator[Any]]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=2) as built_in:
        yield built_in


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("jmm")] == []


def near(rows: Any, right: np.ndarray) -> None:
    found = np.stack(list(rows))
    assert found.shape == right.shape
    assert np.abs(found - right).max() <= exactness.COMPONENT


def test_kinds(embedder: Embedder) -> None:
    mixed = [item for pair in zip(TEXTS, PICTURES, strict=False) for item in pair]
    near(embedder.encode_iter(iter(mixed)), embedder.encode_document(mixed))
    near(embedder.encode_iter(PICTURES, kind="image"), embedder.encode_images(PICTURES))
    near(embedder.encode_iter(TEXTS, kind="query"), embedder.encode_query(TEXTS))
    document = ["front", PICTURES[0], "back"]
    near(embedder.encode_iter([document]), embedder.encode_document([document]))


def test_a_str_is_a_path_for_pictures_alone(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    Image.fromarray(PICTURES[0]).save(path)
    for source in (path, str(path), path.read_bytes()):
        near(embedder.encode_iter([source], kind="image"), embedder.encode_images(PICTURES[:1]))
    near(embedder.encode_iter([str(path)]), embedder.encode_document([str(path)]))


def test_keys(embedder: Embedder) -> None:
    rows = [{"page": picture, "id": i} for i, picture in enumerate(PICTURES)]
    right = embedder.encode_images(PICTURES)
    near(embedder.encode_iter(rows, key="page"), right)
    near(embedder.encode_iter(rows, kind="image", key=lambda row: row["page"]), right)
    pairs = list(enumerate(PICTURES))
    near(embedder.encode_iter(pairs, key=lambda pair: pair[1], kind="image"), right)


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 1}, {"normalize": False}, {"truncate_dim": 8}]
)
def test_options(options: Any, embedder: Embedder) -> None:
    near(embedder.encode_iter(TEXTS, **options), embedder.encode_document(TEXTS, **options))


@pytest.mark.parametrize("precision", ["binary", "ubinary", "int8", "uint8"])
def test_codes(precision: Any, embedder: Embedder) -> None:
    ranges = np.stack([np.full(embedder.dim, -0.3), np.full(embedder.dim, 0.3)]).astype(np.float32)
    options: Any = {"precision": precision}
    if "int8" in precision:
        options["ranges"] = ranges
    alone = [embedder.encode_document(text, **options) for text in TEXTS[:5]]
    step = 1 if "int8" in precision else 0  # company may move a number over an edge
    for found, right in zip(embedder.encode_iter(TEXTS[:5], **options), alone, strict=True):
        assert found.dtype == right.dtype
        assert found.shape == right.shape
        assert np.abs(found.astype(int) - right.astype(int)).max() <= step


def test_more_than_a_window(embedder: Embedder) -> None:
    texts = [f"{i} {i % 7}" for i in range(600)]
    near(embedder.encode_iter(iter(texts)), embedder.encode_document(texts))


def test_nothing(embedder: Embedder) -> None:
    assert list(embedder.encode_iter([])) == []
    assert list(embedder.encode_iter(iter(()), kind="image")) == []


def counted(item: Callable[[int], Any]) -> tuple[Iterator[Any], list[int]]:
    """An endless iterable, and the list of what was taken of it."""
    taken: list[int] = []

    def items() -> Iterator[Any]:
        for i in itertools.count():
            taken.append(i)
            yield item(i)

    return items(), taken


def test_lazy(embedder: Embedder) -> None:
    items, taken = counted(lambda i: f"text {i}")
    stream = embedder.encode_iter(items)
    assert taken == []
    for i in range(600):
        next(stream)
        assert i < len(taken) <= i + 1 + MOST_AHEAD
    stream.close()
    assert len(taken) <= 600 + MOST_AHEAD


def test_lazy_with_pictures(embedder: Embedder) -> None:
    """A window of pictures has about 2,048 tokens, and 64 more are read."""
    page = tiny.picture(16, 10)
    items, taken = counted(lambda _: page)
    stream = embedder.encode_iter(items, kind="image")
    for i in range(130):
        next(stream)
        assert i < len(taken) <= i + 1 + 2048 // PAGE_TOKENS + 1 + 64
    stream.close()


def test_pictures_are_read_while_others_run(embedder: Embedder, tmp_path: Path) -> None:
    """Of 700 small pictures, a good part; none if they were read when a window is gathered."""
    path = tmp_path / "page.png"
    Image.fromarray(PICTURES[0]).save(path)
    running, meanwhile = threading.Event(), []
    forward, read = Pipeline.forward, Reader.__call__

    def slow_forward(*args: Any) -> Any:
        running.set()
        time.sleep(0.2)  # as a larger model would take
        try:
            return forward(*args)
        finally:
            running.clear()

    def watched(reader: Reader, source: Any) -> Any:
        meanwhile.append(running.is_set())
        return read(reader, source)

    with (
        mock.patch.object(Pipeline, "forward", slow_forward),
        mock.patch.object(Reader, "__call__", watched),
    ):
        list(embedder.encode_iter([path] * 700, kind="image"))
    assert len(meanwhile) == 700
    assert sum(meanwhile) >= 100


def test_an_endless_stream_that_is_left(embedder: Embedder) -> None:
    items, _ = counted(lambda i: PICTURES[i % 3])
    for i, vector in enumerate(embedder.encode_iter(items)):
        assert vector.shape == (embedder.dim,)
        if i == 10:
            break


def test_a_stream_never_begun(embedder: Embedder) -> None:
    items, taken = counted(lambda i: PICTURES[0])
    stream = embedder.encode_iter(items)
    del stream
    assert taken == []


@pytest.mark.parametrize("end", ["close", "throw", "collected"])
def test_ends(end: str, embedder: Embedder) -> None:
    items, _ = counted(lambda i: PICTURES[i % 3])
    stream: Any = embedder.encode_iter(items)
    next(stream)
    if end == "close":
        stream.close()
        assert next(stream, "ended") == "ended"
    elif end == "throw":
        with pytest.raises(KeyboardInterrupt):
            stream.throw(KeyboardInterrupt())
    del stream


@pytest.mark.parametrize("at", [0, 5, 8, 30, 255, 256, 300])
def test_a_bad_item(at: int, embedder: Embedder) -> None:
    items: list[Any] = [f"text {i}" for i in range(310)]
    items[at] = b"junk"
    found: list[Any] = []
    with pytest.raises(InputError) as caught:
        found.extend(embedder.encode_iter(items))
    assert caught.value.index == at
    assert len(found) <= at
    rows = list(embedder.encode_iter(items, on_error="nan"))
    assert len(rows) == len(items)
    assert [i for i, row in enumerate(rows) if np.isnan(row).any()] == [at]


def test_bad_pictures(embedder: Embedder, caplog: pytest.LogCaptureFixture) -> None:
    items = [*PICTURES[:3], b"junk", PICTURES[3], Path("/no/such"), "", "a" * 40_000, None]
    with caplog.at_level(logging.WARNING, "jmm"):
        rows = list(embedder.encode_iter(items, on_error="nan"))
    assert [i for i, row in enumerate(rows) if np.isnan(row).any()] == [3, 5, 6, 7, 8]
    assert [message.split(":")[0] for message in caplog.messages] == [
        f"item {i}" for i in (3, 5, 6, 7, 8)
    ]
    with pytest.raises(ContextOverflowError) as caught:
        list(embedder.encode_iter(["a", items[7]]))
    assert caught.value.index == 1


class Mine(Exception):
    pass


@pytest.mark.parametrize("kind", ["document", "query", "image"])
def test_what_the_iterable_raises(kind: Any, embedder: Embedder) -> None:
    def items() -> Iterator[Any]:
        yield from (PICTURES if kind == "image" else TEXTS)
        raise Mine("of the iterable")

    found: list[Any] = []
    with pytest.raises(Mine, match="of the iterable"):
        found.extend(embedder.encode_iter(items(), kind=kind, on_error="nan"))
    assert len(found) == len(PICTURES if kind == "image" else TEXTS)


def test_keys_that_fail(embedder: Embedder) -> None:
    """A row without the key is a bad item, as a picture that cannot be read."""
    rows: list[Any] = [{"page": "a"}, {"other": "b"}, {"page": "c"}, 7]
    with pytest.raises(InputError, match="page") as caught:
        list(embedder.encode_iter(rows, key="page"))
    assert caught.value.index == 1
    found = list(embedder.encode_iter(rows, key="page", on_error="nan"))
    assert [bool(np.isnan(row).any()) for row in found] == [False, True, False, True]

    def broken(_: Any) -> Any:
        raise Mine("of the key")

    with pytest.raises(InputError, match="of the key") as caught:
        list(embedder.encode_iter(rows, key=broken))
    assert caught.value.index == 0


def test_pictures_closed_right_after_they_were_given(embedder: Embedder, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(len(PICTURES))]
    for path, picture in zip(paths, PICTURES, strict=True):
        Image.fromarray(picture).save(path)

    def opened() -> Iterator[Image.Image]:
        for path in paths:
            with Image.open(path) as picture:
                yield picture

    def cleared() -> Iterator[Image.Image]:
        for picture in PICTURES:
            image = Image.fromarray(picture)
            yield image
            image.paste((0, 0, 0), (0, 0, *image.size))
            image.close()

    def files() -> Iterator[Any]:
        for path in paths:
            with path.open("rb") as file:
                yield file

    right = embedder.encode_images(PICTURES)
    for items in (opened, cleared, files):
        near(embedder.encode_iter(items(), kind="image"), right)
        near(embedder.encode_iter(items()), right)
        near(embedder.encode_iter([item] for item in items()), right)


def test_arrays_and_buffers_used_again(embedder: Embedder) -> None:
    """As a camera's or a reader's loop does."""
    pictures = [np.full((56, 84, 3), grey, np.uint8) for grey in range(0, 250, 6)]

    def frames() -> Iterator[np.ndarray]:
        frame = np.empty((56, 84, 3), np.uint8)
        for picture in pictures:
            frame[:] = picture
            yield frame

    def files() -> Iterator[Any]:
        buffer = bytearray(200_000)
        for i, picture in enumerate(pictures):
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "bmp")
            data = file.getvalue()
            buffer[: len(data)] = data
            yield buffer if i % 2 else memoryview(buffer)

    right = embedder.encode_images(pictures)
    near(embedder.encode_iter(frames(), kind="image"), right)
    near(embedder.encode_iter(frames()), right)
    near(embedder.encode_iter([frame] for frame in frames()), right)
    near(embedder.encode_iter(files(), kind="image"), right)


def test_one_object_many_times(embedder: Embedder) -> None:
    image = Image.fromarray(PICTURES[1])
    right = embedder.encode_images(PICTURES[1])
    near(embedder.encode_iter([image] * 60, kind="image"), np.stack([right] * 60))
    near(embedder.encode_iter([image] * 20), np.stack([right] * 20))


def test_vectors_are_the_callers(embedder: Embedder) -> None:
    """Kept vectors do not change, and one changed does not reach another."""
    stream = embedder.encode_iter(TEXTS)
    kept = [next(stream) for _ in range(3)]
    copies = [vector.copy() for vector in kept]
    kept[0][:] = 7
    rest = list(stream)
    np.testing.assert_array_equal(kept[1:], copies[1:])
    near([copies[0], *kept[1:], *rest], embedder.encode_document(TEXTS))


def test_two_streams_at_once(embedder: Embedder) -> None:
    one = embedder.encode_iter(TEXTS[:12])
    other = embedder.encode_iter(PICTURES, kind="image")
    rows = list(zip(one, other, strict=True))
    near([row[0] for row in rows], embedder.encode_document(TEXTS[:12]))
    near([row[1] for row in rows], embedder.encode_images(PICTURES))


def test_a_stream_of_a_stream(embedder: Embedder) -> None:
    vectors = embedder.encode_iter(TEXTS[i % 3] for i, _ in enumerate(embedder.encode_iter(TEXTS)))
    near(vectors, np.stack([embedder.encode_document(TEXTS[i % 3]) for i in range(len(TEXTS))]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": None}, "kind is None"),
        ({"kind": "picture"}, "kind is 'picture'"),
        ({"kind": ["image"]}, "kind is"),
        ({"on_error": "skip"}, "on_error is 'skip'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"precision": "int4"}, "precision is 'int4'"),
        ({"precision": "int8"}, "ranges"),
        ({"precision": "binary", "on_error": "nan"}, "on_error"),
        ({"task": []}, "task is"),
        ({"task": "none"}, "task is 'none'"),
        ({"task": np.array(["retrieval", "code"])}, "task is"),
        ({"truncate_dim": 0}, "truncate_dim"),
        ({"multi_vector": True, "truncate_dim": 16}, "token vectors are not truncated"),
    ],
)
def test_bad_arguments(arguments: Any, message: str, embedder: Embedder) -> None:
    with pytest.raises(InputError, match=message):
        embedder.encode_iter(["a"], **arguments)


@pytest.mark.parametrize("items", [None, 3, "a text", b"bytes", {"a": "b"}, Path("a"), PICTURES[0]])
def test_no_iterable_of_items(items: Any, embedder: Embedder) -> None:
    """One item, or a mapping, is no stream; letters and rows of pixels are no items."""
    with pytest.raises(InputError, match="iterable of items is needed"):
        embedder.encode_iter(items)


def test_closed(embedder: Embedder) -> None:
    other = Embedder(n_threads=1)
    stream = other.encode_iter(f"text {i}" for i in range(1000))
    next(stream)
    other.close()
    with pytest.raises(InputError, match="closed"):
        list(stream)
    with pytest.raises(InputError, match="closed"):
        other.encode_iter(["a"])


def test_ctrl_c() -> None:
    lines = run(
        """
embedder = Embedder(n_threads=1)

def items():
    for i in range(10**9):
        if i == 40:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        yield tiny.picture(8, 8)

print(raised(lambda: [None for _ in embedder.encode_iter(items(), on_error="nan")]))
print([t.name for t in threading.enumerate() if t.name.startswith("jmm")])
print(np.isfinite(embedder.encode_query("a")).all())
"""
    )
    assert lines == ["KeyboardInterrupt", "[]", "True"]


@sanitizer.measures_memory
@pytest.mark.slow
def test_memory_is_flat() -> None:
    """3,000 small pictures and texts."""
    lines = run(
        """
import ctypes, pathlib, resource

libc = ctypes.CDLL(None)
trim = getattr(libc, "malloc_trim", lambda keep: None)
M_ARENA_MAX = -8  # the heaps of threads keep now more, now less
getattr(libc, "mallopt", lambda *_: None)(M_ARENA_MAX, 1)

def megabytes():
    gc.collect()
    trim(0)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20

pages = [tiny.pixels(40 + i, 70, i) for i in range(20)]
items = (pages[i % 20] if i % 3 else f"text {i}" for i in range(3000))
peaks = [0, 0, 0]
with Embedder(n_threads=1) as embedder:
    for i, vector in enumerate(embedder.encode_iter(items)):
        if i % 50 == 0:
            peaks[i // 1000] = max(peaks[i // 1000], megabytes())
    print(i, peaks[2] - peaks[1] < 3 or peaks)
"""
    )
    assert lines == ["2999 True"]


class Stop(Exception):
    pass


def test_items_before_a_bad_one_still_come(embedder: Embedder) -> None:
    wanted = embedder.encode_query(["a", "b"])
    stream = embedder.encode_iter(["a", "b", 5, "c"], kind="query")
    np.testing.assert_array_equal([next(stream), next(stream)], wanted)
    with pytest.raises(InputError, match="item 2"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_items_before_the_iterable_failed_still_come(embedder: Embedder) -> None:
    def items() -> Iterator[str]:
        yield "a"
        raise Stop

    stream = embedder.encode_iter(items(), kind="query")
    np.testing.assert_array_equal(next(stream), embedder.encode_query("a"))
    with pytest.raises(Stop):
        next(stream)
