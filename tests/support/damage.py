"""Damages a checkpoint's folder: settings, weights, adapters, bytes.

Example:
    >>> setting("config.json", "vision_config.depth", 0)(folder)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from support import checkpoint, tiny

MODEL = tiny.MODELS["qwen25_small"]

Damage: TypeAlias = "Callable[[Path], None]"


def edit(name: str, change: Callable[[Any], Any]) -> Damage:
    def apply(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        checkpoint.write_json(folder / name, change(value) or value)

    return apply


def setting(file: str, path: str, value: Any) -> Damage:
    def change(root: Any) -> None:
        *inner, last = path.split(".")
        for name in inner:
            root = root[name]
        root[last] = value

    return edit(file, change)


def without(file: str, path: str) -> Damage:
    def change(root: Any) -> None:
        *inner, last = path.split(".")
        for name in inner:
            root = root[name]
        del root[last]

    return edit(file, change)


def rewrite(change: Callable[[dict[str, np.ndarray]], Any]) -> Damage:
    """Writes the weights again after a change of ``{name: array}``."""

    def apply(folder: Path) -> None:
        stored = tiny.weights(MODEL) | checkpoint.projector(MODEL)
        named = {
            checkpoint.rename(name, checkpoint.JINA): values.copy()
            for name, values in stored.items()
        }
        change(named)
        checkpoint.save(named, folder / "model.safetensors")

    return apply


def poke(name: str, value: float) -> Damage:
    return rewrite(lambda named: named[name].reshape(-1).__setitem__(-1, value))


def adapters(change: Callable[[dict[str, np.ndarray]], Any]) -> Damage:
    def apply(folder: Path) -> None:
        pairs = {
            f"base_model.model.{module}.lora_{side}.{task}.weight": values
            for task in checkpoint.TASKS
            for module, both in checkpoint.lora(MODEL, task, tiny.weights(MODEL)).items()
            for side, values in zip("AB", both, strict=True)
        }
        change(pairs)
        checkpoint.save(pairs, folder / "adapters" / "adapter_model.safetensors")

    return apply


def cut(name: str, n_bytes: int) -> Damage:
    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) - n_bytes])

    return apply


def head(text: bytes) -> Damage:
    """Weights whose header is ``text``."""
    data = len(text).to_bytes(8, "little") + text
    return lambda folder: (folder / "model.safetensors").write_bytes(data) and None


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()
