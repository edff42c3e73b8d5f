"""Settings of a checkpoint against transformers, which reads the same folder.

What is honoured gives transformers' vectors, which are others than without it; what is refused
would give others, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jmm import Embedder, ModelLoadError
from jmm.convert import convert
from support import checkpoint, tiny
from support.damage import MODEL, Damage, edit, setting, without

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sequences = pytest.importorskip("support.sequences")

CONFIG, PICTURES = "config.json", "preprocessor_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
TEXT, VISION = "text_config.", "vision_config."
WORDS = "Wie hoch war der Umsatz  <tool_call> in 2024?"
SIZE = (150, 90)
COMPONENT = 1e-5  # both sides compute in float32
OTHER = 1e-4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkpoint.write(MODEL, tmp_path_factory.mktemp("base") / "base")
    # The class that cuts a text as tokenizer.json says; Qwen2Tokenizer keeps some of its own.
    setting(TOKENIZER_CONFIG, "tokenizer_class", "PreTrainedTokenizerFast")(folder)
    return folder


@pytest.fixture(scope="module")
def plain(base: Path) -> dict[str, NDArray[np.float32]]:
    return right(base)


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(base, tmp_path / "in"))


def right(folder: Path) -> dict[str, NDArray[np.float32]]:
    """What transformers makes of a folder: of a text and of a picture."""
    net = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)(WORDS)["input_ids"]
    pil = transformers.models.qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil
    seen = pil.from_pretrained(folder)(tiny.pixels(*SIZE), return_tensors="pt")
    n_rows = int(seen["image_grid_thw"].prod()) // tiny.MERGE**2
    start, pad, end = (MODEL.vocab.id(f"<|{name}|>") for name in NAMES)
    sequence = torch.tensor([[start, *[pad] * n_rows, end]])
    with torch.no_grad():
        text = net.model(input_ids=torch.tensor([words])).last_hidden_state
        picture = net.model(
            input_ids=sequence, mm_token_type_ids=(sequence == pad).int(), **seen
        ).last_hidden_state
    return {
        "text": sequences.unit_mean(text[0].numpy()),
        "picture": sequences.unit_mean(picture[0].numpy()),
    }


NAMES = ("vision_start", "image_pad", "vision_end")


def found(out: Path) -> dict[str, NDArray[np.float32]]:
    with Embedder(out, n_threads=1) as embedder:
        return {
            "text": embedder.encode_query(WORDS),
            "picture": embedder.encode_images(tiny.pixels(*SIZE)),
        }


def is_other(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return any(np.abs(first[key] - second[key]).max() > OTHER for key in first)


def both(*changes: Damage) -> Damage:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


ROPE = {"mrope_section": list(MODEL.mrope_section), "rope_type": "default"}
HONOURED: dict[str, Damage] = {
    "rms_norm_eps": setting(CONFIG, TEXT + "rms_norm_eps", 0.5),
    "rope_theta": setting(CONFIG, TEXT + "rope_theta", 50.0),
    "rope_theta in rope_scaling": setting(CONFIG, TEXT + "rope_scaling.rope_theta", 50.0),
    "rope_parameters": both(
        without(CONFIG, TEXT + "rope_scaling"),
        setting(CONFIG, TEXT + "rope_parameters", ROPE | {"rope_theta": 50.0}),
    ),
    "rope_scaling before rope_parameters": both(
        setting(CONFIG, TEXT + "rope_scaling.rope_theta", 50.0),
        setting(CONFIG, TEXT + "rope_parameters", ROPE | {"rope_theta": 7.0}),
    ),
    "mrope_section": setting(CONFIG, TEXT + "rope_scaling.mrope_section", [4, 2, 2]),
    "window_size": setting(CONFIG, VISION + "window_size", 56),
    "fullatt_block_indexes": setting(CONFIG, VISION + "fullatt_block_indexes", [0, 1, 2, 3]),
    "num_heads that are missing": without(CONFIG, VISION + "num_heads"),
    "image_mean": setting(PICTURES, "image_mean", [0.5, 0.25, 0.75]),
    "image_std": setting(PICTURES, "image_std", [0.5, 0.25, 0.75]),
    "max_pixels": setting(PICTURES, "max_pixels", 4 * 28 * 28),
    "size": both(
        without(PICTURES, "min_pixels"),
        without(PICTURES, "max_pixels"),
        setting(PICTURES, "size", {"shortest_edge": 3136, "longest_edge": 4 * 28 * 28}),
    ),
    "processor_config.json": lambda folder: checkpoint.write_json(
        folder / "processor_config.json",
        {"image_processor": checkpoint.PREPROCESSOR | {"image_mean": [0.5, 0.25, 0.75]}},
    ),
}


@pytest.mark.parametrize("name", HONOURED)
def test_honoured(
    name: str, folder: Path, plain: dict[str, NDArray[np.float32]], tmp_path: Path
) -> None:
    HONOURED[name](folder)
    expected = right(folder)
    assert is_other(expected, plain)
    given = found(convert(folder, tmp_path / "out"))
    for key, vector in expected.items():
        np.testing.assert_allclose(given[key], vector, rtol=0, atol=COMPONENT, err_msg=key)


def test_as_it_is(base: Path, plain: dict[str, NDArray[np.float32]], tmp_path: Path) -> None:
    given = found(convert(base, tmp_path / "out"))
    for key, vector in plain.items():
        np.testing.assert_allclose(given[key], vector, rtol=0, atol=COMPONENT, err_msg=key)


ABSENT: list[Damage] = [
    without(PICTURES, "image_mean"),
    without(PICTURES, "image_std"),
    without(PICTURES, "patch_size"),
    both(without(PICTURES, "min_pixels"), without(PICTURES, "max_pixels")),
    without(CONFIG, VISION + "window_size"),
    without(CONFIG, TEXT + "use_sliding_window"),
    without(CONFIG, TEXT + "rms_norm_eps"),
    without(CONFIG, TEXT + "rope_theta"),
    both(without(CONFIG, TEXT + "rope_theta"), setting(CONFIG, "rope_theta", 50.0)),
    setting(CONFIG, "hidden_act", "gelu"),  # counts in text_config alone
]


@pytest.mark.parametrize("change", ABSENT)
def test_what_is_missing_has_the_default(change: Damage, folder: Path, tmp_path: Path) -> None:
    change(folder)
    given = found(convert(folder, tmp_path / "out"))
    for key, vector in right(folder).items():
        np.testing.assert_allclose(given[key], vector, rtol=0, atol=COMPONENT, err_msg=key)


def test_one_file_of_weights_goes_before_several(
    folder: Path, plain: dict[str, NDArray[np.float32]], tmp_path: Path
) -> None:
    weights = {name: 0.5 * values for name, values in tiny.weights(MODEL).items()}
    several = checkpoint.write(MODEL, tmp_path / "several", shards=2, weights=weights)
    for path in several.glob("model*"):
        shutil.copy(path, folder)
    assert not is_other(right(folder), plain)
    given = found(convert(folder, tmp_path / "out"))
    for key, vector in plain.items():
        np.testing.assert_allclose(given[key], vector, rtol=0, atol=COMPONENT, err_msg=key)


def token(key: str) -> Damage:
    def change(root: Any) -> None:
        (added,) = (one for one in root["added_tokens"] if one["content"] == "<tool_call>")
        added[key] = True

    return edit(TOKENIZER, change)


END = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {
        "<|endoftext|>": {
            "id": "<|endoftext|>",
            "ids": [MODEL.vocab.id("<|endoftext|>")],
            "tokens": ["<|endoftext|>"],
        }
    },
}
REFUSED: dict[str, Damage] = {
    "hidden_act": setting(CONFIG, TEXT + "hidden_act", "gelu"),
    "is_causal of null": setting(CONFIG, TEXT + "is_causal", None),
    "is_causal": setting(CONFIG, TEXT + "is_causal", False),
    "rope of another kind": setting(
        CONFIG, TEXT + "rope_scaling", ROPE | {"rope_type": "linear", "factor": 8.0}
    ),
    "sliding windows": both(
        setting(CONFIG, TEXT + "use_sliding_window", True),
        setting(CONFIG, TEXT + "sliding_window", 4),
        setting(CONFIG, TEXT + "max_window_layers", 0),
    ),
    "hidden_act of the tower": setting(CONFIG, VISION + "hidden_act", "gelu"),
    "rope_theta of the tower": setting(
        CONFIG, VISION + "rope_parameters", {"rope_type": "default", "rope_theta": 10.0}
    ),
    "do_rescale": setting(PICTURES, "do_rescale", False),
    "do_normalize": setting(PICTURES, "do_normalize", False),
    "do_normalize of null": setting(PICTURES, "do_normalize", None),
    "resample": setting(PICTURES, "resample", 0),
    "rescale_factor": setting(PICTURES, "rescale_factor", 0.001),
    "post_processor": setting(TOKENIZER, "post_processor", END),
    "normalizer": setting(TOKENIZER, "normalizer", {"type": "Lowercase"}),
    "add_prefix_space": both(
        setting(TOKENIZER_CONFIG, "tokenizer_class", "Qwen2Tokenizer"),
        setting(TOKENIZER_CONFIG, "add_prefix_space", True),
    ),
    "lstrip": token("lstrip"),
    "rstrip": token("rstrip"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(
    name: str, folder: Path, plain: dict[str, NDArray[np.float32]], tmp_path: Path
) -> None:
    REFUSED[name](folder)
    assert is_other(right(folder), plain)
    with pytest.raises(ModelLoadError):
        convert(folder, tmp_path / "out")
