"""A bar where one was asked for, and nothing otherwise."""

from __future__ import annotations

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
