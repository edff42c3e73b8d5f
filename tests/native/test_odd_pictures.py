"""Pictures that no camera makes, through the built-in model; memory stays within the formula."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jmm import Embedder, InputError
from subprocess_case import run
from support import odd_pictures, sanitizer
from support.odd_pictures import encoded, expected, noise

GOOD = np.asarray(noise(60, 80))
FILES = dict(odd_pictures.files(61, 47))


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(n_threads=1) as built_in:
        yield built_in


def test_every_format_and_mode_gives_the_vector_of_its_pixels(embedder: Embedder) -> None:
    exact = {name: data for name, data in FILES.items() if "A" not in name[4:]}
    rows = embedder.encode_images(exact.values())
    wanted = embedder.encode_images(expected(data) for data in exact.values())
    assert len(rows) > 40
    np.testing.assert_array_equal(rows, wanted)


def test_what_is_cut_short_leaves_the_others_alone(embedder: Embedder) -> None:
    good = embedder.encode_images(GOOD)
    for name, data in FILES.items():
        cuts = [data[: len(data) * tenth // 10] for tenth in range(10)]
        sources = [GOOD, *cuts, GOOD]
        rows = embedder.encode_images(sources, on_error="nan")
        np.testing.assert_array_equal(rows[[0, -1]], [good, good], err_msg=name)
        bad = np.isnan(rows).all(axis=1)
        assert (bad | np.isfinite(rows).all(axis=1)).all()
        assert bad[1]


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (27, 257), (14, 2800), (2800, 14), (3000, 2000)])
def test_sizes(embedder: Embedder, size: tuple[int, int]) -> None:
    image = noise(*size)
    row = embedder.encode_images(encoded(image))
    np.testing.assert_array_equal(row, embedder.encode_images(np.asarray(image)))
    assert np.isfinite(row).all()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((1, 5000), "aspect ratio of 5000"),
        ((14, 2801), "aspect ratio"),
        ((20_000, 20_000), "limit"),
    ],
)
def test_sizes_that_are_refused(embedder: Embedder, size: tuple[int, int], message: str) -> None:
    width, height = size
    row = bytes(1 + (width + 7) // 8)
    data = odd_pictures.png(width, height, 1, 0, row * height)
    with pytest.raises(InputError, match=f"^item 1: .*{message}"):
        embedder.encode_images([GOOD, data, GOOD])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(6000, 8000), (12_000, 9000)])
def test_great_sizes(embedder: Embedder, size: tuple[int, int]) -> None:
    image = noise(*size)
    row = embedder.encode_images(encoded(image, "PNG", compress_level=1))
    np.testing.assert_array_equal(row, embedder.encode_images(image))


def test_nothing_is_printed_or_opened() -> None:
    """A log of Pillow's and libtiff's errors would be on stderr."""
    lines = run(
        """
from support import odd_pictures
samples = bytearray(odd_pictures.tiled_tiff(20, 9, 32, bytes(1024)))
at = samples.index(b"\\x15\\x01\\x04\\0") + 8
samples[at:at + 4] = b"\\xff\\xff\\0\\0"
broken = bytearray(odd_pictures.encoded(odd_pictures.noise(64, 64), "TIFF", compression="tiff_lzw"))
broken[20:60] = b"\\xff" * 40
embedder = Embedder(n_threads=1)
for data in (samples, broken):
    print(raised(lambda: embedder.encode_images(bytes(data))))
"""
    )
    assert lines == ["InputError", "InputError"]


# Bytes per pixel that `to_rgb` holds at its peak, by docs/reliability.md.
PEAKS = {
    "RGB": ("PNG", "RGB", False, 4),
    "RGB turned": ("PNG", "RGB", True, 8),
    "RGBA": ("PNG", "RGBA", False, 8),
    "P": ("GIF", "P", False, 5),
    "I;16": ("PNG", "I;16", False, 6),
    "F": ("TIFF", "F", False, 8 + 4),  # and the file itself
    "CMYK turned": ("JPEG", "CMYK", True, 12),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is measured as Linux does it")
@pytest.mark.parametrize("name", PEAKS)
@sanitizer.measures_memory
def test_peak_memory(name: str, tmp_path: Path) -> None:
    lines = run(
        f"""
import ctypes, pathlib
from jmm.images import to_rgb
from PIL import Image
from support import odd_pictures

def status(key):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(key)]
    return int(line.split()[1]) * 1024

file_format, mode, turned, most = {PEAKS[name]!r}
exif = Image.Exif()
exif[0x0112] = 6 if turned else 1
path = words[0]
image = odd_pictures.noise(3000, 2000, mode)
image.save(path, file_format, **({{"exif": exif}} if turned else {{}}))
del image
to_rgb(odd_pictures.encoded(odd_pictures.noise(9, 9, mode), file_format))
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = status("VmRSS")
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
picture = to_rgb(path)
peak = (status("VmHWM") - before - 8 * 2**20) / (3000 * 2000)
print(peak <= most or peak, peak > most - 3 or peak)
""",
        tmp_path / "picture",
    )
    assert lines == ["True True"]
