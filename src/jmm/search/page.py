"""Files as pages: a picture is one, a PDF has its own, a text is cut into passages."""

from __future__ import annotations

import codecs
import errno
import hashlib
import math
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from jmm.errors import InputError
from jmm.extras import needed
from jmm.images import to_rgb
from jmm.search.passages import Passage, split

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from PIL import Image

    from jmm.search.walk import Kind

    Content: TypeAlias = "Path | Image.Image | Passage"

PDF_DPI = 150
_POINTS_PER_INCH = 72
# A page that would be larger is rendered smaller: the model scales to max_pixels anyway.
_MOST_TIMES_MAX_PIXELS = 4

_BLOCK_BYTES = 2**20
_HASH_BYTES = 16
MOST_TEXT_BYTES = 64 * 2**20
# By their marks, the longest first: that of UTF-16 starts that of UTF-32.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"": "utf-8-sig",
}
_ADVICE = "save it as UTF-8, or as UTF-16 or UTF-32 with its mark"

# What names a content: the kind of its file, and a hash of its bytes.
CONTENT = rf"(?:picture|pdf|text)-[0-9a-f]{{{2 * _HASH_BYTES}}}"


class Settings(NamedTuple):
    """How files become pages: bytes of a passage, area of a picture in pixels."""

    passage_bytes: int
    max_pixels: int


class Stamp(NamedTuple):
    """Tells a file that was written to from one that was not."""

    n_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        """Of the file as it is now.

        Raises:
            OSError: It is not there, or no regular file.
        """
        status = os.stat(path)
        _check_regular(status)
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def content_of(path: str, kind: Kind) -> str:
    """Names the content of a file: its kind and a hash of its bytes."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    with _opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return f"{kind}-{digest.hexdigest()}"


def is_content(name: str) -> bool:
    """Whether it is a name as `content_of` gives them."""
    return re.fullmatch(CONTENT, name) is not None


def kind_of(content: str) -> Kind:
    """The kind of the files that have a content."""
    return cast("Kind", content.partition("-")[0])


def count(path: str, kind: Kind, settings: Settings) -> int:
    """Counts the pages of a file.

    Raises:
        InputError: The file is damaged or no UTF-8.
        OSError: It cannot be read.
    """
    if kind == "pdf":
        with _pdf(path) as document:
            return len(document)
    if kind == "text":
        return sum(1 for _ in split(_text(path), settings.passage_bytes))
    return 1


def read(
    path: str, kind: Kind, pages: list[int], settings: Settings
) -> Generator[tuple[int, Content | InputError], None, None]:
    """Reads pages, one at a time.

    Args:
        path: Of the file.
        kind: Of the file.
        pages: Their numbers, rising from 0.
        settings: As when they were counted.

    Yields:
        The page's number and a picture's path, a PDF's rendered page or a text's passage; an
        error for a page that is damaged.

    Raises:
        InputError: The whole file is damaged.
        OSError: It cannot be read.
    """
    if kind == "pdf":
        with _pdf(path) as document:
            for page in pages:
                yield page, _rendered(document, page, settings)
    elif kind == "text":
        wanted = set(pages)
        for page, passage in enumerate(split(_text(path), settings.passage_bytes)):
            if page in wanted:
                yield page, passage
    else:
        yield 0, Path(path)


def picture(path: str, kind: Kind, page: int, settings: Settings) -> Image.Image:
    """A picture, or a page of a PDF, in RGB.

    Raises:
        InputError: It cannot be read.
        OSError: The file is not there.
    """
    _, content = next(iter(read(path, kind, [page], settings)))
    if isinstance(content, InputError):
        raise content
    if isinstance(content, Passage):
        raise InputError(f"{path} is a text")
    return to_rgb(content)


def pdf_library() -> Any:
    """The package that reads PDFs.

    Raises:
        MissingExtraError: It is not installed.
    """
    return needed("pypdfium2", "a PDF")


@contextmanager
def _pdf(path: str) -> Iterator[Any]:
    pdfium = pdf_library()
    # PDFium is given the file itself: it takes no name that is not UTF-8.
    with _opened(path) as file:
        try:
            document = pdfium.PdfDocument(file)
        except pdfium.PdfiumError as error:
            raise InputError(_why_not(error, pdfium)) from None
        try:
            yield document
        finally:
            document.close()


def _rendered(document: Any, number: int, settings: Settings) -> Image.Image | InputError:
    pdfium = pdf_library()
    try:
        page = document[number]
        try:
            width, height = page.get_size()
            scale = PDF_DPI / _POINTS_PER_INCH
            area = width * height * scale**2
            scale *= min(1, math.sqrt(_MOST_TIMES_MAX_PIXELS * settings.max_pixels / max(area, 1)))
            bitmap = page.render(scale=scale)
            try:
                image: Image.Image = bitmap.to_pil().convert("RGB")
                image.load()
                return image.copy()
            finally:
                bitmap.close()
        finally:
            page.close()
    except (pdfium.PdfiumError, ValueError, MemoryError) as error:
        return InputError(f"the page cannot be rendered: {error}")


def _why_not(error: Any, pdfium: Any) -> str:
    if error.err_code == pdfium.raw.FPDF_ERR_PASSWORD:
        return "the PDF has a password; save it without"
    return f"this is no PDF, or a damaged one: {str(error).rstrip('.')}"


def _text(path: str) -> str:
    with _opened(path) as file:
        data = file.read(MOST_TEXT_BYTES + 1)
    if len(data) > MOST_TEXT_BYTES:
        raise InputError(f"the text is larger than {MOST_TEXT_BYTES / 2**20:g} MiB; split it")
    encoding = next(name for mark, name in _ENCODINGS.items() if data.startswith(mark))
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"the text is no {encoding.removesuffix('-sig').upper()}: byte {error.start} is "
            f"{data[error.start]:#04x}; {_ADVICE}"
        ) from None
    if "\0" in text:
        raise InputError(f"the text has NUL characters; {_ADVICE}")
    return text


def _opened(path: str) -> IO[bytes]:
    # not blocking: what was a file a moment ago may be a pipe that nobody writes into
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    try:
        _check_regular(os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
