"""Ids of random texts, live against the reference tokenizer, with both vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import token_texts
from jmm import _core, profiles
from support import tiny

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["qwen25_small", "qwen25_true_vocab"])
def test_equal_to_the_reference(name: str, tiny_files: Callable[..., tuple[Path, Path]]) -> None:
    reference = pytest.importorskip("support.reference")
    engine = _core.Engine(tiny_files(name)[0], n_threads=1)
    model = tiny.MODELS[name]
    encoder = reference.tokenizer(model, False)
    for text in [*token_texts.texts(), *token_texts.mixtures(seed=1, count=2000)]:
        tokens = encoder.encode(text, add_special_tokens=False).tokens
        parts = profiles.QWEN_VL.text_parts((profiles.TEXT,), text)
        assert engine.tokenize(parts).token_ids() == [model.vocab.id(token) for token in tokens]
