"""Too little memory is an error that the engine survives; much use takes no more than little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subprocess_case import run
from support import sanitizer

pytestmark = sanitizer.measures_memory

if sys.platform != "linux":
    pytest.skip("address space is limited and measured as Linux does it", allow_module_level=True)

# Each limit has a child of its own, forked before any engine is there, so that no heap is left
# from the one before.
LIMIT = """
import collections, ctypes, pathlib, resource

# What is freed must be gone: a heap that has room would hide the limit.
M_MMAP_THRESHOLD = -3
getattr(ctypes.CDLL(None), "mallopt", lambda *_: None)(M_MMAP_THRESHOLD, 2**16)

def limit(megabytes):
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + int(megabytes * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

def unlimit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

def sweep(child):
    outcomes = collections.Counter()
    for megabytes in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 96, 400):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(40)
            os.write(writer, child(megabytes).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            outcome = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        outcomes[outcome if code == 0 else f"{megabytes} MB: exit code {code}"] += 1
    for outcome in sorted(outcomes):
        print(outcome)

def under(megabytes, call):
    limit(megabytes)
    try:
        return raised(call)
    finally:
        unlimit()

"""


def test_threads_that_cannot_be_started() -> None:
    """Guards patch 0014: ggml asserted that a thread can be had."""
    lines = run(
        LIMIT
        + """
before = n_tasks()
for n_threads in (64, 512):
    limit(48)
    try:
        Embedder(n_threads=n_threads)
    except OutOfMemoryError as error:
        print(error)
    unlimit()
print(n_tasks() - before)
with Embedder(n_threads=2) as embedder:
    print(np.isfinite(embedder.encode_query("a")).all(), n_tasks() - before)
"""
    )
    assert lines == [
        "64 threads cannot be started; lower n_threads",
        "512 threads cannot be started; lower n_threads",
        "0",
        "True 1",
    ]


def test_loading_within_any_limit() -> None:
    """Guards patch 0015: libmtmd used a weight buffer that it had not got."""
    lines = run(
        LIMIT
        + """
def child(megabytes):
    outcome = under(megabytes, lambda: Embedder(n_threads=1))
    return f"{outcome}, then {raised(lambda: Embedder(n_threads=1).encode_query('a'))}"

sweep(child)
"""
    )
    assert lines == ["OutOfMemoryError, then nothing", "nothing, then nothing"]


@pytest.fixture
def files(tiny_files: Callable[..., tuple[Path, Path]]) -> tuple[Path, Path]:
    return tiny_files("qwen25_small", "F16")


BIG = {
    "text": "embedder.encode_query(TEXT[:1500])",
    "picture": "embedder.encode_patches(PATCHES, GRID)",
}


def call_within_any_limit(
    call: str, before: str, files: tuple[Path, Path], known: bool
) -> list[str]:
    """``known``: whether jmm asks what is free; allocations fail only where it does not."""
    return run(
        LIMIT
        + f"""
from jmm import memory
if not {known}:
    memory.available = lambda: None

def big(embedder):
    return {BIG[call]}

def again(embedder, wanted):
    try:
        return "the same" if np.array_equal(big(embedder), wanted) else "another vector"
    except InputError as error:
        return str(error)

def child(megabytes):
    embedder = Embedder(*words, n_threads=1)
    {before}
    outcome = under(megabytes, lambda: big(embedder))
    wanted = big(Embedder(*words, n_threads=1))
    return f"{{outcome}}, then {{again(embedder, wanted)}}"

sweep(child)
""",
        *files,
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("call", BIG)
def test_calls_within_any_limit(call: str, files: tuple[Path, Path], known: bool) -> None:
    """A call larger than any before. Guards patch 0017."""
    lines = call_within_any_limit(
        call,
        'embedder.encode_query("a"); embedder.encode_patches(PATCHES[:16], [1, 4, 4])',
        files,
        known,
    )
    assert lines == ["OutOfMemoryError, then the same", "nothing, then the same"]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("call", BIG)
def test_first_calls_within_any_limit(call: str, files: tuple[Path, Path], known: bool) -> None:
    """An assertion of ggml may stand for the lack of memory: the model is given up then."""
    lines = call_within_any_limit(call, "pass", files, known)
    ends = ("the model is closed", "the same")
    survived = [f"OutOfMemoryError, then {end}" for end in ends]
    assert lines[-1] == "nothing, then the same"
    assert lines[:-1]
    assert set(lines[:-1]) <= set(survived)


def test_choosing_types_for_a_great_file() -> None:
    lines = run(
        LIMIT
        + """
def choose(n):
    tensors = [("blk.0.attn_q.weight", 0, (32, 32, 1, 1))] * n
    return lambda: _core.choose_types("qwen2vl", (1, 1, 1, 0), 7, tensors)

great = choose(400_000)  # over 100 MB as ggml's tensors
print(under(48, great))
print(raised(choose(1)))
"""
    )
    assert lines == ["OutOfMemoryError", "nothing"]


def test_an_item_too_large_is_a_row_of_nan() -> None:
    lines = run(
        LIMIT
        + """
embedder = Embedder(n_threads=1)
embedder.encode_query(["a", "b"])
limit(4)
rows = embedder.encode_query(["a", "a" * 2_000_000, "b"], on_error="nan")
unlimit()
print(*np.isnan(rows).all(axis=1))
"""
    )
    assert lines == ["False True False"]


# Freed memory is given back before it is measured: glibc keeps tens of MB, now more, now less.
USAGE = """
import ctypes, pathlib, resource

trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda keep: None)

def usage():
    gc.collect()
    trim(0)
    rss = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return rss / 2**20, len(os.listdir("/proc/self/fd")), n_tasks()

def grown(step, n):
    for i in range(n // 3):
        step(i)
    before = usage()
    for i in range(n // 3, n):
        step(i)
    megabytes, files, threads = np.subtract(usage(), before)
    print(megabytes < 4 or megabytes, int(files), int(threads))

"""


def test_engines_that_come_and_go() -> None:
    lines = run(
        USAGE
        + """
def step(i):
    embedder = Embedder(n_threads=1 + i % 2)
    if i % 2:
        embedder.encode_document(["a", tiny.picture(4, 4)])
    if i % 3:
        embedder.close()

def fail(i):
    raised(lambda: Embedder(demo.paths()[1]))
    raised(lambda: _core.Engine(demo.paths()[0], demo.paths()[0], n_threads=2))

grown(step, 60)
grown(fail, 60)
"""
    )
    assert lines == ["True 0 0"] * 2


def test_calls_of_changing_sizes() -> None:
    lines = run(
        USAGE
        + """
embedder = Embedder(n_threads=1)
rng = np.random.default_rng(0)

def step(i):
    kind, size = i % 5, int(rng.integers(1, 30))
    if kind == 0:
        embedder.encode_query(["a"] * size)
    elif kind == 1:
        embedder.encode_query("abc " * 20 * size)
    elif kind == 2:
        embedder.encode_images(tiny.pixels(20 + 5 * size, 300 - 6 * size))
    elif kind == 3:
        embedder.encode_document([b"junk", "a" * size, "", tiny.picture(2, 2)], on_error="nan")
    else:
        raised(lambda: embedder.encode_patches(PATCHES, [1, 4, size]))

grown(step, 300)
"""
    )
    assert lines == ["True 0 0"]
