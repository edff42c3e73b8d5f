"""The built-in model: small, trained on drawn shapes, words and digits; CARD.md is its card."""

from __future__ import annotations

from pathlib import Path


def paths() -> tuple[Path, Path]:
    """Where the built-in model lies.

    Returns:
        The text model, with its multi-vector projector, and its mmproj.

    Example:
        >>> [path.name for path in paths()]
        ['demo-text.gguf', 'demo-mmproj.gguf']
    """
    folder = Path(__file__).parent
    return folder / "demo-text.gguf", folder / "demo-mmproj.gguf"
