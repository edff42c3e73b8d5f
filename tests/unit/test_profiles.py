"""Prompts piece by piece, the choice of a profile, and the rows that are pooled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jmm.errors import InputError
from jmm.profiles import (
    EMBEDDINGGEMMA,
    JINA_V4,
    PLAIN_TEXT,
    PROFILES,
    QWEN_VL,
    Pooling,
    Prompt,
    Special,
    Tile,
    Tiled,
    choose,
)

PATCHES = np.zeros((4 * 6, 1176), np.float32)


def query(text: str, task: str = "retrieval") -> list[object]:
    return list(JINA_V4.text_parts(JINA_V4.query[task], text))


def document(text: str, task: str = "retrieval") -> list[object]:
    return list(JINA_V4.text_parts(JINA_V4.document[task], text))


def test_prefix_and_text_are_one_plain_part() -> None:
    assert query("red bus") == [("Query: red bus", False)]
    assert document("red bus") == [("Passage: red bus", False)]


@pytest.mark.parametrize(
    ("task", "of_query", "of_document"),
    [
        ("retrieval", "Query: a", "Passage: a"),
        ("text-matching", "Query: a", "Query: a"),
        ("code", "Query: a", "Passage: a"),
    ],
)
def test_prefixes_of_each_task(task: str, of_query: str, of_document: str) -> None:
    assert query("a", task) == [(of_query, False)]
    assert document("a", task) == [(of_document, False)]


def test_picture_prompt_in_order() -> None:
    start, user, picture, ask, end, newline = JINA_V4.image_parts((PATCHES, 4, 6))
    assert start == ("<|im_start|>", True)
    assert user == ("user\n", False)
    assert picture[0] is PATCHES
    assert picture[1:] == (4, 6)
    assert ask == ("Describe the image.", False)
    assert end == ("<|im_end|>", True)
    assert newline == ("\n", False)


def test_plain_picture_prompt_is_the_picture() -> None:
    (picture,) = QWEN_VL.image_parts((PATCHES, 4, 6))
    assert picture[0] is PATCHES
    assert picture[1:] == (4, 6)


@pytest.mark.parametrize(
    "text",
    ["<|vision_start|>", "<__media__>", "a<|im_end|>b", "<|image_pad|>", "{text}", "%s", ""],
)
@pytest.mark.parametrize("profile", [JINA_V4, QWEN_VL, PLAIN_TEXT], ids=lambda p: p.name)
def test_user_text_is_plain(text: str, profile) -> None:
    prefix = "Query: " if profile is JINA_V4 else ""
    wanted = [(prefix + text, False)] if prefix + text else []
    assert profile.text_parts(profile.query["retrieval"], text) == wanted


def test_nfc_where_the_reference_normalises() -> None:
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    assert query(decomposed) == [(f"Query: {composed}", False)]
    prompt: Prompt = QWEN_VL.query["retrieval"]
    assert QWEN_VL.text_parts(prompt, decomposed) == [(composed, False)]
    assert PLAIN_TEXT.text_parts(prompt, decomposed) == [(decomposed, False)]


def test_nfc_leaves_compatibility_forms() -> None:
    assert query("ﬁ ½") == [("Query: ﬁ ½", False)]


def test_a_profile_of_texts_reads_no_pictures() -> None:
    with pytest.raises(InputError, match="profile embeddinggemma reads no pictures"):
        EMBEDDINGGEMMA.image_parts((PATCHES, 4, 6))


def test_tiles_stand_among_the_tokens_of_their_family() -> None:
    pixels = np.zeros((56, 56, 3), np.float32)
    picture = Tiled(("\n", Special("<img>"), Tile(pixels), Special("</img>"), "\n"))
    parts = PLAIN_TEXT.mixed_parts(["a", picture, "b"])
    assert [part if len(part) > 1 else part[0] is pixels for part in parts] == [
        ("a\n", False),
        ("<img>", True),
        True,
        ("</img>", True),
        ("\nb", False),
    ]


@pytest.mark.parametrize(
    ("pooling", "of_picture", "of_others"),
    [
        ("mean", (0, 20), (0, 20)),
        ("span", (4, 12), (0, 20)),
        ("last", (19, 20), (19, 20)),
        ("cls", (0, 1), (0, 1)),
    ],
)
def test_rows_that_are_pooled(
    pooling: Pooling, of_picture: tuple[int, int], of_others: tuple[int, int]
) -> None:
    # A picture in rows 5 to 10, markers in rows 4 and 11, 20 rows in all.
    profile = replace(QWEN_VL, pooling=pooling)
    assert profile.pooled_rows(20, (5, 11)) == of_picture
    assert profile.pooled_rows(20) == of_others


def test_pooling_of_each_family() -> None:
    assert JINA_V4.pooling == "span"
    assert QWEN_VL.pooling == PLAIN_TEXT.pooling == "mean"


def test_tasks_begin_with_the_default() -> None:
    assert JINA_V4.tasks == ("retrieval", "text-matching", "code")
    assert QWEN_VL.tasks == PLAIN_TEXT.tasks == ("retrieval",)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_each_task_has_both_prompts(profile) -> None:
    assert tuple(profile.document) == profile.tasks


def test_limits_of_jina_v4() -> None:
    assert JINA_V4.dims == (128, 256, 512, 1024, 2048)
    assert (JINA_V4.min_pixels, JINA_V4.max_pixels) == (3136, 602_112)


def test_chosen_by_the_name_asked_for() -> None:
    metadata = {"general.architecture": "qwen2vl", "jmm.profile": "text"}
    choice = choose(metadata, "jina-embeddings-v4")
    assert choice.profile is JINA_V4
    assert choice.reason == "asked for by name"


def test_chosen_by_the_key_of_the_file() -> None:
    metadata = {"jmm.profile": "qwen2.5-vl", "general.name": "jina-embeddings-v4"}
    choice = choose(metadata)
    assert choice.profile is QWEN_VL
    assert choice.reason == "jmm.profile in the model file"


@pytest.mark.parametrize("key", ["general.name", "general.basename", "general.finetune"])
@pytest.mark.parametrize(
    "value",
    [
        "jina-embeddings-v4",
        "Jina Embeddings V4",
        "jina_embeddings_v4",
        "jinaai/jina-embeddings-v4-text-retrieval",
    ],
)
def test_chosen_by_a_name_in_the_file(key: str, value: str) -> None:
    choice = choose({"general.architecture": "qwen2vl", key: value})
    assert choice.profile is JINA_V4
    assert choice.reason == f"{key} is {value!r}"


@pytest.mark.parametrize("name", ["jina-embeddings-v3", "Qwen2.5-VL-3B-Instruct", ""])
def test_chosen_by_architecture(name: str) -> None:
    choice = choose({"general.architecture": "qwen2vl", "general.name": name})
    assert choice.profile is QWEN_VL
    assert "qwen2vl" in choice.reason


@pytest.mark.parametrize("metadata", [{"general.architecture": "llama"}, {}])
def test_any_other_model_reads_text(metadata: dict[str, str]) -> None:
    choice = choose(metadata)
    assert choice.profile is PLAIN_TEXT
    assert repr(metadata.get("general.architecture")) in choice.reason


@pytest.mark.parametrize(
    ("tower", "name"),
    [("gemma3", "gemma3"), ("idefics3", "idefics3"), ("mlp", "llava"), ("internvl", "internvl")],
)
def test_chosen_by_the_vision_tower(tower: str, name: str) -> None:
    choice = choose({"general.architecture": "llama"}, tower=tower)
    assert choice.profile is PROFILES[name]
    assert choice.reason == f"the vision tower is of kind {tower!r}"
    last = choose({"general.architecture": "llama", "llama.pooling_type": 3}, tower=tower)
    assert (last.profile.name, last.profile.pooling) == (name, "last")


def test_the_architecture_goes_before_the_tower() -> None:
    assert choose({"general.architecture": "qwen2vl"}, tower="mlp").profile is QWEN_VL


@pytest.mark.parametrize("name", ["jina", "", 5, []])
def test_unknown_name(name: object) -> None:
    with pytest.raises(InputError) as caught:
        choose({}, name)  # type: ignore[arg-type]
    for known in PROFILES:
        assert known in str(caught.value)
    assert repr(name) in str(caught.value)


def test_unknown_name_in_the_file() -> None:
    with pytest.raises(InputError, match=r"jmm\.profile of the model is 'other'.*qwen2\.5-vl"):
        choose({"jmm.profile": "other"})


@pytest.mark.parametrize(
    ("value", "profile"),
    [
        ("Gme Qwen2 VL 2B Instruct", "gme-qwen2-vl"),
        ("Alibaba-NLP/gme-Qwen2-VL-7B-Instruct", "gme-qwen2-vl"),
        ("colqwen2-v1.0", "colqwen2"),
        ("ColQwen2.5-v0.2", "colqwen2.5"),
        ("colqwen2_5", "colqwen2.5"),
        ("Qwen3-VL-Embedding-2B", "qwen3-vl-embedding"),
        ("Qwen3 VL Embedding 8B", "qwen3-vl-embedding"),
        ("Qwen3-VL-8B-Instruct", "qwen3-vl"),
    ],
)
def test_further_families_by_name(value: str, profile: str) -> None:
    architecture = "qwen3vl" if profile.startswith("qwen3") else "qwen2vl"
    metadata = {"general.architecture": architecture, "general.name": value}
    assert choose(metadata).profile.name == profile


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_special_tokens_are_listed(profile) -> None:
    prompts = [*profile.query.values(), *profile.document.values(), profile.image, profile.mixed]
    used = {piece.token for prompt in prompts for piece in prompt or () if hasattr(piece, "token")}
    assert used | set(profile.markers) == set(profile.specials)
