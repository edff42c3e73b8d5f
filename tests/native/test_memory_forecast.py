"""What jmm says that work will take, and what it refuses for want of room."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, OutOfMemoryError, VisionEncoder, memory
from subprocess_case import run
from support import gguf_writer, sanitizer, tiny
from support.wide import WIDE

TEXTS = [f"text {i} " * (1 + i % 7) for i in range(64)]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """Sets what jmm takes for free memory."""
    free: dict[str, int | None] = {"bytes": None}
    monkeypatch.setattr(memory, "available", lambda: free["bytes"])
    return free


def forecast(embedder: Embedder, peak: str) -> int:
    peaks = embedder.info["peak_bytes"]
    assert isinstance(peaks, dict)
    return int(peaks[peak])


def test_peaks_follow_the_limits() -> None:
    with Embedder(n_ctx=512, max_pixels=6500) as small, Embedder(n_ctx=8192) as large:
        for peak in ("longest_text", "picture"):
            assert forecast(small, peak) < forecast(large, peak)
        assert forecast(small, "loaded") == forecast(large, "loaded")
        assert forecast(small, "texts") == forecast(large, "texts")
        cache = large.info["peak_bytes"]["longest_text"] - small.info["peak_bytes"]["longest_text"]  # type: ignore[index]
    with Embedder(n_ctx=512, f16_kv=True) as small, Embedder(n_ctx=8192, f16_kv=True) as large:
        half = forecast(large, "longest_text") - forecast(small, "longest_text")
    assert half < cache


def test_settings_that_cannot_fit_are_refused(room: dict[str, int | None]) -> None:
    with Embedder() as embedder:
        beside = forecast(embedder, "longest_text") - forecast(embedder, "loaded")
        n_ctx = embedder.info["n_ctx"]
    room["bytes"] = beside - 1
    with pytest.raises(OutOfMemoryError, match=f"n_ctx={n_ctx} cannot fit"):
        Embedder(n_ctx=n_ctx)  # type: ignore[arg-type]
    with Embedder() as embedder:  # nobody asked for so much
        assert embedder.encode_query("a").shape == (256,)
    room["bytes"] = beside
    Embedder(n_ctx=n_ctx).close()  # type: ignore[arg-type]
    room["bytes"] = 6_000_000  # the tower's file is read whole, 5.6 MB
    with pytest.raises(OutOfMemoryError, match="max_pixels=800000 cannot fit"):
        Embedder(max_pixels=800_000)


def test_batches_are_split_before_they_fail(room: dict[str, int | None]) -> None:
    with Embedder() as embedder:
        wanted = embedder.encode_query(TEXTS)
    with Embedder() as embedder:
        one = embedder.encode_query(TEXTS[0])
        room["bytes"] = 0  # the buffers that one text has stay; there are no others
        found = embedder.encode_query(TEXTS)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(embedder.encode_query(TEXTS[0]), one)
        long = "word " * 3000
        with pytest.raises(
            OutOfMemoryError, match=r"needs [\d,]+ MB more and 0 MB are free"
        ) as error:
            embedder.encode_query(["a", long])
        assert error.value.index == 1
        rows = embedder.encode_query(["a", long, TEXTS[0]], on_error="nan")
        assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
        np.testing.assert_array_equal(rows[2], one)
        room["bytes"] = None
        assert np.isfinite(embedder.encode_query(long)).all()


SMALL = tiny.pixels(56, 140)  # 10 tokens
LARGE = tiny.pixels(28, 56)  # enlarged to 84 x 140, the least that is allowed: 15 tokens


def test_pictures_are_split_before_they_fail(room: dict[str, int | None]) -> None:
    with Embedder() as embedder:
        wanted = embedder.encode_images([SMALL, LARGE] * 5)
    with Embedder() as embedder:
        embedder.encode_images(LARGE)
        room["bytes"] = 0
        np.testing.assert_array_equal(embedder.encode_images([SMALL, LARGE] * 5), wanted)
    room["bytes"] = None
    with Embedder() as embedder:
        embedder.encode_images(SMALL)
        room["bytes"] = 0
        with pytest.raises(OutOfMemoryError, match="MB are free") as error:
            embedder.encode_images([SMALL, LARGE])
        assert error.value.index == 1


def test_the_tower_alone(room: dict[str, int | None]) -> None:
    from jmm import demo

    with VisionEncoder(demo.paths()[1]) as encoder:
        before = encoder.encode([SMALL, LARGE])
    with VisionEncoder(demo.paths()[1]) as encoder:
        encoder.encode(SMALL)
        room["bytes"] = 0
        tokens = encoder.encode([SMALL, LARGE, SMALL], on_error="nan")
        assert tokens[1] is None
        np.testing.assert_array_equal(tokens[2].values, before[0].values)


@pytest.mark.skipif(sys.platform != "linux", reason="measured as Linux does it")
@pytest.mark.parametrize("peak", ["picture", "texts", "longest_text"])
@sanitizer.measures_memory
def test_measured(peak: str, tmp_path: Path) -> None:
    """What work takes beside a loaded model, within 15 %.

    The heap is trimmed after loading: what is left of that there would hide a part.
    """
    model, weights = WIDE["wide25"], tiny.weights(WIDE["wide25"])
    paths = (
        gguf_writer.write_text(model, weights, tmp_path / "text.gguf"),
        gguf_writer.write_mmproj(model, weights, tmp_path / "mmproj.gguf"),
    )
    lines = run(
        """
import ctypes, json

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024

peak, *paths = words
embedder = Embedder(*paths, n_threads=1, n_ctx=2048, max_pixels=1120 * 1120)
peaks = embedder.info["peak_bytes"]
picture = np.random.default_rng(0).integers(0, 255, (1120, 1120, 3), np.uint8)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
if peak == "picture":
    embedder.encode_images(picture)
elif peak == "texts":
    embedder.encode_query(["abc " * 12] * 80)
else:
    embedder.encode_query("a" * 2000)
print(json.dumps([peaks[peak] - peaks["loaded"], status("VmHWM") - before]))
""",
        peak,
        *paths,
    )
    forecast, measured = json.loads(lines[-1])
    assert abs(forecast / measured - 1) < 0.15, (forecast, measured)
