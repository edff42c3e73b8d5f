"""The end of the interpreter, whatever the engine is doing then: the asked exit code, no noise."""

from __future__ import annotations

import pytest

from subprocess_case import run

# Daemon threads that never stop by themselves; the main thread ends while they compute.
DAEMONS = """
running = []

def loop(call):
    while True:
        call()
        running.append(call)

def start(*calls):
    for call in calls:
        threading.Thread(target=loop, args=(call,), daemon=True).start()
    while set(running) != set(calls):
        time.sleep(0.01)

"""

BUSY = {
    "text": 'embedder = Embedder(n_threads=2)\nstart(lambda: embedder.encode_query(["a"] * 99))',
    "vision": "embedder = Embedder(n_threads=2)\nstart(lambda: embedder.encode_patches(*PICTURE))",
    "loading": "start(lambda: Embedder(n_threads=2).close())",
    "log lines": """
import logging
logging.getLogger("jmm").addHandler(logging.NullHandler())
set_log_level("DEBUG")
start(lambda: Embedder(n_threads=2).encode_query("a"))
""",
    "several": """
one, two = Embedder(n_threads=1), Embedder(n_threads=1)
start(
    lambda: one.encode_query(TEXT),
    lambda: one.encode_patches(*PICTURE),
    lambda: two.encode_query("a"),
    lambda: two.encode_query(["a", ""], on_error="nan"),
    lambda: raised(lambda: two._engine.tokenize([])),
)
""",
}


@pytest.mark.parametrize("busy", BUSY)
def test_daemon_threads_at_the_end(busy: str) -> None:
    snippet = f'{DAEMONS}PICTURE = PATCHES, GRID\n{BUSY[busy]}\nprint("end")\n'
    assert run(snippet + "sys.exit(3)", exit_code=3) == ["end"]
    if busy == "text":
        assert run(snippet) == ["end"]


def test_sys_exit_beside_a_thread_that_ends() -> None:
    """A thread that is no daemon is waited for, and its call gives its result."""
    lines = run(
        """
embedder = Embedder(n_threads=2)
embedder.encode_query("a")
begun = threading.Event()

def work():
    begun.set()
    print(np.isfinite(embedder.encode_patches(PATCHES, GRID)).all())

threading.Thread(target=work).start()
begun.wait()
sys.exit(3)
""",
        exit_code=3,
    )
    assert lines == ["True"]


@pytest.mark.parametrize(
    "keep",
    [
        "pass",
        "sys.keep = embedder",
        "np.keep = embedder",
        "embedder.itself = embedder",
        "import builtins; builtins.keep = embedder",
    ],
)
def test_an_engine_alive_at_the_end(keep: str) -> None:
    snippet = f'embedder = Embedder(n_threads=2)\nembedder.encode_query("a")\n{keep}\n'
    assert run(snippet + "sys.exit(4)", exit_code=4) == []


def test_engines_used_and_closed_at_the_end() -> None:
    lines = run(
        """
import atexit, functools
embedders = [Embedder(n_threads=2) for _ in range(5)]
cached = functools.lru_cache(lambda: embedders[0])
cached()
atexit.register(embedders[1].close)
embedders[2].close()
generator = (embedders[3].encode_query(text) for text in "ab")
next(generator)
sequence = embedders[4]._engine.tokenize([("a", False)])
used = Embedder(n_threads=2)
atexit.register(lambda: print(used.encode_query("a").shape))
del embedders
"""
    )
    assert lines == ["(256,)"]


def test_use_after_the_engines_are_retired() -> None:
    """An exit function that was there before jmm runs after jmm's own, and gets an error."""
    lines = run(
        """
code = '''
import atexit
atexit.register(lambda: print(raised(lambda: embedder.encode_query("a"))))
import jmm
def raised(call):
    try:
        call()
    except jmm.JmmError as error:
        return type(error).__name__, str(error)
embedder = jmm.Embedder(n_threads=1)
embedder.encode_query("a")
'''
import subprocess
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(done.returncode, done.stdout.strip(), done.stderr)
"""
    )
    assert lines == ["0 ('DecodeError', 'the interpreter is shutting down') "]
