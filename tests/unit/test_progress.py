"""A bar where one was asked for, and nothing otherwise."""

from __future__ import annotations

import errno
import gc
import io
import subprocess
import sys
import time

import pytest

from jmm.progress import progress_bar


def test_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(3, shown=False) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_shown_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(7, shown=True) as advance:
        advance(2)
        advance(5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "0/7" in err
    assert "7/7" in err


def test_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(2_000_000, shown=True, unit="B") as advance:
        advance(2_000_000)
    assert "2.00M/2.00M" in capsys.readouterr().err


def test_closed_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with progress_bar(7, shown=True) as advance:
            advance(2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr().err.endswith("\n")


class Failing(io.StringIO):
    """A stderr that takes so many writes and no more."""

    def __init__(self, n_writes: int, error: int) -> None:
        super().__init__()
        self.n_left, self.error = n_writes, error

    def write(self, text: str) -> int:
        self.n_left -= 1
        if self.n_left < 0:
            raise OSError(self.error, "cannot be written")
        return super().write(text)


@pytest.mark.parametrize("n_writes", range(6))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPIPE, errno.EIO])
def test_the_work_goes_on_without_a_bar(
    n_writes: int, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Failing(n_writes, error))
    with progress_bar(3, shown=True) as advance:
        for _ in range(3):
            advance(1)
            time.sleep(0.11)  # drawn ten times a second
    gc.collect()


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed):
        monkeypatch.setattr("sys.stderr", stderr)
        with progress_bar(2, shown=True) as advance:
            advance(2)


def test_what_a_handler_raises_while_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        left = 1

        def write(self, text: str) -> int:
            if "1/2" in text and self.left:
                self.left = 0
                raise TimeoutError("mine")
            return super().write(text)

    monkeypatch.setattr("sys.stderr", Interrupted())
    with progress_bar(2, shown=True) as advance:
        time.sleep(0.11)
        with pytest.raises(TimeoutError, match="mine"):
            advance(1)


ENDS = """
import io, sys, tqdm
from jmm.progress import progress_bar
class Lost(io.StringIO):
    def write(self, text):
        raise {error}
stderr, sys.stderr = sys.stderr, Lost()
try:
    with progress_bar(2, shown=True) as advance:
        advance(1)
except KeyboardInterrupt:
    pass
sys.stderr = stderr
with tqdm.tqdm(total=1, file=io.StringIO()) as bar:  # the application's own
    bar.update(1)
print(tqdm.tqdm.monitor_interval)
"""


@pytest.mark.parametrize("error", ["OSError(28, 'full')", "KeyboardInterrupt()"])
def test_a_bar_cut_off_locks_nothing(error: str) -> None:
    """Neither other bars nor the end of the process."""
    command = [sys.executable, "-c", ENDS.format(error=error)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
