"""An engine belongs to the process that loaded it; other processes load their own."""

from __future__ import annotations

import os

import pytest

from subprocess_case import run

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

# The child gets an alarm of its own, that of the tests would only tell of the parent.
FORK = """
def in_child(function):
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

"""

USES = """
def uses():
    patches, grid = PATCHES[:16], np.array([1, 4, 4])
    picture = tiny.picture(4, 4)
    for on_error in ("raise", "nan"):
        yield lambda: embedder.encode_query("a", on_error=on_error)
        yield lambda: embedder.encode_query(["a"], on_error=on_error)
        yield lambda: embedder.encode_query([], on_error=on_error)
        yield lambda: embedder.encode_document(["a", picture], on_error=on_error)
        yield lambda: embedder.encode_images(picture, on_error=on_error)
        yield lambda: embedder.encode_patches(patches, grid, on_error=on_error)
    yield embedder._engine.check
    yield lambda: embedder._engine.tokenize([("a", False)])
    pooled = np.empty((1, embedder.dim), np.float32)
    yield lambda: embedder._engine.forward([sequence], [(0, 1)], pooled)
    yield lambda: embedder._engine.encode_vision(sequence.pictures)

"""


def test_every_use_in_a_forked_child() -> None:
    lines = run(
        FORK
        + USES
        + """
embedder = Embedder(n_threads=2)
sequence = embedder._engine.tokenize([("a", False)])
wanted = embedder.encode_query("a")

def child():
    print(*(raised(use) for use in uses()))
    try:
        embedder.encode_query(["a"], on_error="nan")
    except ForkedProcessError as error:
        print(error.index, "load the model after forking" in str(error), embedder.dim)
    sys.stdout.flush()
    os._exit(0)

print(in_child(child))
print(np.array_equal(embedder.encode_query("a"), wanted))
"""
    )
    assert lines == [" ".join(["ForkedProcessError"] * 16), "None True 256", "0", "True"]


@pytest.mark.parametrize(
    "end",
    ["pass", "embedder.close()", "embedder = sequence = None; gc.collect()"],
)
def test_the_child_ends_by_itself(end: str) -> None:
    """Nothing of the parent's is freed there, and its worker threads are not waited for."""
    lines = run(
        f"""
embedder = Embedder(n_threads=4)
sequence = embedder._engine.tokenize([("a", False)])
wanted = embedder.encode_query("a")
pid = os.fork()
if pid == 0:
    signal.alarm(40)
    {end}
    sys.exit(6)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(np.array_equal(embedder.encode_query("a"), wanted))
embedder.close()
"""
    )
    assert lines == ["6", "True"]


@pytest.mark.parametrize("other", ["embedder.encode_patches(PATCHES, GRID)", "Embedder()"])
def test_fork_while_another_thread_computes(other: str) -> None:
    """The child has the lock of a thread that it has not; it must not wait for it."""
    lines = run(
        FORK
        + f"""
embedder = Embedder(n_threads=2)
wanted = embedder.encode_query("a")
stop = False

def work():
    while not stop:
        {other}

def child():
    uses = (lambda: embedder.encode_query("a"), embedder.close, lambda: embedder.dim)
    print(*(raised(use) for use in uses))
    own = Embedder(n_threads=2)
    print(np.array_equal(own.encode_query("a"), wanted))
    sys.exit(0)

thread = threading.Thread(target=work)
thread.start()
"""
        + """
def forked():
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        child()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

print(*(forked() for _ in range(4)))
stop = True
thread.join()
print(np.array_equal(embedder.encode_query("a"), wanted))
"""
    )
    assert lines == ["ForkedProcessError nothing nothing", "True"] * 4 + ["0 0 0 0", "True"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools(method: str) -> None:
    """A pickled embedder loads itself again; one that came by fork is refused."""
    lines = run(
        """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing

held = None

def use_held(text):
    return raised(lambda: held.encode_query(text))

def use_sent(embedder, text):
    with embedder:
        return embedder.encode_query(text)

def use_own(text):
    with Embedder(n_threads=1) as embedder:
        return embedder.encode_query(text)

def fail():
    with Embedder(n_threads=1) as embedder:
        embedder.encode_query(["a", ""])

if __name__ == "__main__":
    held = Embedder(n_threads=1)
    wanted = held.encode_query("a")
    context = multiprocessing.get_context(words[0])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        tasks = (
            pool.submit(use_held, "a"),
            pool.submit(use_sent, held, "a"),
            pool.submit(use_own, "a"),
        )
        result, *vectors = [task.result() for task in tasks]
        error = pool.submit(fail).exception()
    print(result, *(np.array_equal(vector, wanted) for vector in vectors))
    print(np.array_equal(held.encode_query("a"), wanted))
    print(type(error).__name__, error.index)
""",
        method,
    )
    refused = "ForkedProcessError" if method == "fork" else "AttributeError"
    assert lines == [f"{refused} True True", "True", "InputError 1"]
