"""The built-in model: tiny, seeded, untrained. Its vectors carry no meaning."""

from __future__ import annotations

from pathlib import Path


def paths() -> tuple[Path, Path]:
    """Where the built-in model lies.

    Returns:
        The text model and its mmproj.

    Example:
        >>> [path.name for path in paths()]
        ['tiny-text.gguf', 'tiny-mmproj.gguf']
    """
    folder = Path(__file__).parent
    return folder / "tiny-text.gguf", folder / "tiny-mmproj.gguf"
