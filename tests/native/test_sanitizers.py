"""What tools/sanitize adds: that a fault is seen at all, and that nothing leaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from subprocess_case import run
from support import sanitizer

pytestmark = pytest.mark.skipif(not sanitizer.ADDRESS, reason="for tools/sanitize address")

FAULTY = """
import ctypes, faulthandler, sys
from jmm import demo
faulthandler.enable()
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
block = ctypes.c_void_p(c.malloc(ctypes.c_size_t(8)))
if sys.argv[1] == "freed":
    c.free(block)
c.memset(block, 0, ctypes.c_size_t(9 if sys.argv[1] == "beyond" else 8))
print("alive")
"""


@pytest.mark.parametrize(
    ("fault", "said"), [("beyond", "heap-buffer-overflow"), ("freed", "heap-use-after-free")]
)
def test_a_fault_ends_the_process(fault: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTY, fault],
        env=sanitizer.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (66, "")
    assert f"ERROR: AddressSanitizer: {said}" in done.stderr


LEAKS = """
import ctypes
leaks = ctypes.CDLL(None).__lsan_do_recoverable_leak_check

def use():
    with Embedder(n_threads=2) as embedder:
        embedder.encode_query(["a", "", TEXT], on_error="nan")
        embedder.encode_document(["a", [tiny.picture(4, 6), "b"], b"junk"], on_error="nan")
        tokens = embedder.encode_vision([tiny.picture(4, 4), tiny.picture(6, 4)])
        embedder.encode_images(tokens)
        raised(lambda: embedder.encode_patches(PATCHES, [1, -44, -44]))
        raised(lambda: embedder._engine.tokenize([(PATCHES, 44, 45)]))
        raised(lambda: embedder._engine.tokenize([(PATCHES, 44, 44), ("a", False), (1, 2, 3)]))
    raised(lambda: Embedder(demo.paths()[1]))
    raised(lambda: Embedder(*demo.paths(), adapters={"a": demo.paths()[0]}))
    raised(lambda: _core.Engine(demo.paths()[0], demo.paths()[0], n_threads=2))
    raised(lambda: _core.Tower(demo.paths()[0], n_threads=2))
    raised(lambda: _core.read_gguf(__file__))

"""


def test_nothing_leaks() -> None:
    assert run(LEAKS + "use()\ngc.collect()\nprint(leaks())\n") == ["0"]


def test_a_leak_is_seen() -> None:
    """The same with one block whose address is nowhere."""
    leak = "ctypes.CDLL(None).malloc.restype = None\nctypes.CDLL(None).malloc(1234)\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{LEAKS.split('def')[0]}{leak}print(leaks())"],
        env=sanitizer.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "1\n"
    assert "1234 byte(s)" in done.stderr
