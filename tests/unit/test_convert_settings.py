"""Settings that would give other vectors are honoured or refused; none is ignored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from jmm import Embedder, InputError, ModelLoadError, cli
from jmm.convert import convert
from jmm.convert.config import VisionConfig, read_config
from support import checkpoint, qwen3_checkpoint, tiny
from support.damage import MODEL, Damage, edit, setting, without

TEXT, VISION = "text_config.", "vision_config."
CONFIG, PICTURES = "config.json", "preprocessor_config.json"
TOKENIZER, ADAPTER = "tokenizer.json", "adapters/adapter_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
NESTED = "processor_config.json"


def template(*pieces: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": [{kind: {"id": name, "type_id": 0}} for kind, name in pieces],
    }


def stage(index: int, key: str, value: Any) -> Damage:
    """Changes one of the two stages that split a text."""
    return edit(
        TOKENIZER,
        lambda root: root["pre_tokenizer"]["pretokenizers"][index].__setitem__(key, value),
    )


def more_stages(root: Any) -> None:
    root["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": True})


def decoder(index: str, **values: Any) -> Damage:
    """An entry of what tokenizer_config.json says of added tokens."""
    return setting(TOKENIZER_CONFIG, "added_tokens_decoder", {index: values})


def no_byte(root: Any) -> None:
    root["model"]["unk_token"] = "<|endoftext|>"
    root["model"]["vocab"]["ab"] = root["model"]["vocab"].pop("\u0120")
    root["model"]["merges"] = [one for one in root["model"]["merges"] if "\u0120" not in one]


def token(key: str) -> Damage:
    return edit(TOKENIZER, lambda root: root["added_tokens"][-1].__setitem__(key, True))


def both(*changes: Damage) -> Damage:
    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


PAD = MODEL.vocab.id("<|image_pad|>")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
END = ("SpecialToken", "<|endoftext|>")
SEQUENCE = ("Sequence", "A")

TARGETS = [*(module.split(".")[-1] for module in checkpoint.MODULES), checkpoint.PROJECTOR]

REFUSED: list[tuple[Damage, str]] = [
    (setting(CONFIG, TEXT + "hidden_act", "gelu"), "hidden_act is 'gelu'; \"silu\" is supp"),
    (setting(CONFIG, TEXT + "layer_types", ["sliding_attention"] * 3), "layer_types is ['slid"),
    (setting(CONFIG, TEXT + "layer_types", 3), "layer_types is 3; a list of strings"),
    (setting(CONFIG, TEXT + "use_sliding_window", 1), "use_sliding_window is 1; false is supp"),
    (setting(CONFIG, TEXT + "partial_rotary_factor", 0.5), "partial_rotary_factor is 0.5"),
    (
        setting(CONFIG, TEXT + "rope_scaling.partial_rotary_factor", 0.5),
        "rope_scaling.partial_rotary_factor is 0.5; 1.0 is supported",
    ),
    (setting(CONFIG, TEXT + "is_causal", False), "text_config.is_causal is False; true is supp"),
    (setting(CONFIG, TEXT + "is_causal", None), "text_config.is_causal is None; true is supp"),
    (setting(CONFIG, TEXT + "head_dim", 8), "text_config.head_dim is 8; 16 is supported"),
    (setting(CONFIG, TEXT + "head_dim", 16.0), "text_config.head_dim is 16.0; a whole number"),
    (
        setting(CONFIG, TEXT + "rope_scaling", {"full_attention": {"mrope_section": [2, 3, 3]}}),
        "rope_scaling.full_attention is {'mrope_section': [2, 3, 3]}; one object for all layers",
    ),
    (
        setting(CONFIG, TEXT + "rope_scaling", {}),  # [16, 24, 24], as transformers has it
        "rope_parameters.mrope_section is missing; three numbers that sum to 8",
    ),
    (setting(CONFIG, TEXT + "rope_scaling", 3), "text_config.rope_scaling is 3; an object"),
    (
        setting(CONFIG, VISION + "rope_parameters", {"rope_type": "axial", "rope_theta": 10.0}),
        "vision_config.rope_parameters.rope_theta is 10.0; 10000.0 is supported",
    ),
    (setting(CONFIG, VISION + "rope_theta", 10.0), "vision_config.rope_theta is 10.0; 10000.0"),
    (
        setting(CONFIG, VISION + "rope_parameters", {"rope_type": "linear", "factor": 2.0}),
        "vision_config.rope_parameters.rope_type is 'linear'; default and axial are supported",
    ),
    (setting(CONFIG, VISION + "head_dim", 8), "vision_config.head_dim is 8; 32 is supported"),
    (setting(CONFIG, VISION + "out_hidden_size", 32), "out_hidden_size is 32; 64 is supported"),
    (setting(CONFIG, VISION + "window_size", 100), "window_size is 100; a multiple of 28 is"),
    (without(CONFIG, VISION + "fullatt_block_indexes"), "fullatt_block_indexes is [7, 15, 23, 31]"),
    (
        setting(CONFIG, "quantization_config", {"quant_method": "bitsandbytes"}),
        "quantization_config is {'quant_method': 'bitsandbytes'}; weights as model.safetensors",
    ),
    (setting(CONFIG, "transformers_weights", "x.safetensors"), "transformers_weights is 'x.saf"),
    (setting(CONFIG, "truncate_dim", 32), "truncate_dim is 32; 64 is supported"),
    (setting(CONFIG, "task_names", []), "adapters holds adapters, and config.json has no task_na"),
    (setting(CONFIG, VISION + "hidden_act", "gelu"), "vision_config.hidden_act is 'gelu'"),
    (setting(CONFIG, VISION + "in_channels", True), "vision_config.in_channels is True"),
    (setting(CONFIG, VISION + "temporal_patch_size", 1), "temporal_patch_size is 1; 2 is supp"),
    (setting(CONFIG, "single_vector_pool_strategy", "cls"), "single_vector_pool_strategy is 'cls'"),
    (setting(CONFIG, "matryoshka_dims", [16, 65]), "matryoshka_dims is [16, 65]; numbers from 1"),
    (setting(CONFIG, "matryoshka_dims", [0]), "matryoshka_dims is [0]; numbers from 1"),
    (setting(CONFIG, "image_token_id", 3), "config.json: the id of <|image_pad|> is 3, and in"),
    (setting(CONFIG, "vision_start_token_id", 3), "the id of <|vision_start|> is 3, and in"),
    (setting(CONFIG, "vision_end_token_id", 3), "the id of <|vision_end|> is 3, and in"),
    (setting(PICTURES, "do_resize", False), "do_resize is False; true is supported"),
    (setting(PICTURES, "do_rescale", False), "do_rescale is False; true is supported"),
    (setting(PICTURES, "do_normalize", False), "do_normalize is False; true is supported"),
    (setting(PICTURES, "do_convert_rgb", False), "do_convert_rgb is False; true is supported"),
    (setting(PICTURES, "do_resize", None), "do_resize is None; true is supported"),
    (setting(PICTURES, "resample", None), "resample is None; 3 is supported"),
    (setting(PICTURES, "rescale_factor", None), "rescale_factor is None; 1/255 is supported"),
    (setting(PICTURES, "patch_size", None), "patch_size is None; a whole number"),
    (setting(PICTURES, "image_mean", None), "image_mean is None; three numbers"),
    (setting(PICTURES, "max_pixels", "602112"), "max_pixels is '602112'; a whole number"),
    (setting(PICTURES, "min_pixels", 3136.0), "min_pixels is 3136.0; a whole number"),
    (setting(PICTURES, "max_pixels", True), "max_pixels is True; a whole number"),
    (
        both(without(PICTURES, "max_pixels"), setting(PICTURES, "size", {"shortest_edge": 3136})),
        "size.longest_edge is missing; a whole number",
    ),
    (
        both(without(PICTURES, "max_pixels"), setting(PICTURES, "size", {"max_pixels": 3136})),
        "size.longest_edge is missing; a whole number",
    ),
    (setting(PICTURES, "do_resize", 1), "do_resize is 1; true is supported"),
    (setting(PICTURES, "do_center_crop", True), "do_center_crop is True; false is supported"),
    (setting(PICTURES, "resample", 2), "resample is 2; 3 is supported"),
    (setting(PICTURES, "rescale_factor", 0.5), "rescale_factor is 0.5; 1/255 is supported"),
    (setting(PICTURES, "rescale_factor", "x"), "rescale_factor is 'x'; 1/255 is supported"),
    (setting(PICTURES, "merge_size", 3), "merge_size is 3; 2 is supported"),
    (setting(PICTURES, "patch_size", 16), "patch_size is 16; 14 is needed, as"),
    (setting(PICTURES, "temporal_patch_size", 1), "temporal_patch_size is 1; 2 is supported"),
    (setting(PICTURES, "size", 224), "size is 224; an object is needed"),
    (setting(PICTURES, "size", {"height": 224}), "size is {'height': 224}; height is not supp"),
    (setting(PICTURES, "image_processor_type", "CLIPImageProcessor"), "image_processor_type is"),
    (setting(TOKENIZER, "normalizer", None), "normalizer is None; NFC is supported"),
    (setting(TOKENIZER, "normalizer", {"type": "NFKC"}), "normalizer is {'type': 'NFKC'}; NFC"),
    (stage(0, "invert", True), "the one of Qwen2 is supported"),
    (stage(0, "behavior", "Removed"), "the one of Qwen2 is supported"),
    (stage(0, "pattern", {"Regex": r"\s+"}), "the one of Qwen2 is supported"),
    (stage(1, "add_prefix_space", True), "the one of Qwen2 is supported"),
    (stage(1, "use_regex", True), "the one of Qwen2 is supported"),
    (edit(TOKENIZER, more_stages), "the one of Qwen2 is supported"),
    (setting(TOKENIZER, "pre_tokenizer", [1]), "the one of Qwen2 is supported"),
    (setting(TOKENIZER, "model.dropout", 0.1), "model.dropout is 0.1; 0.0 is supported"),
    (setting(TOKENIZER, "model.byte_fallback", True), "model.byte_fallback is True; false is"),
    (setting(TOKENIZER, "model.ignore_merges", True), "model.ignore_merges is True; false is"),
    (setting(TOKENIZER, "model.end_of_word_suffix", "</w>"), "model.end_of_word_suffix is '</w>'"),
    (setting(TOKENIZER, "model.continuing_subword_prefix", "##"), "subword_prefix is '##'"),
    (token("lstrip"), "takes the space around it or stands alone only"),
    (token("rstrip"), "takes the space around it or stands alone only"),
    (token("single_word"), "takes the space around it or stands alone only"),
    (
        edit(TOKENIZER, lambda root: root["added_tokens"][-1].__setitem__("content", "e\u0301")),
        r"token 'e\u0301' is not in the form NFC",
    ),
    (edit(TOKENIZER, no_byte), "unk_token is '<|endoftext|>'; null is supported where a byte"),
    (setting(TOKENIZER, "pre_tokenizer.type", "Other"), "the one of Qwen2 is supported"),
    (
        setting(TOKENIZER_CONFIG, "tokenizer_class", "GPT2Tokenizer"),
        "tokenizer_class is 'GPT2Tokenizer'; supported are Qwen2Tokenizer",
    ),
    (setting(TOKENIZER_CONFIG, "add_prefix_space", True), "add_prefix_space is True; false is"),
    (setting(TOKENIZER_CONFIG, "split_special_tokens", True), "split_special_tokens is True"),
    (setting(TOKENIZER_CONFIG, "add_eos_token", 1), "add_eos_token is 1; true or false"),
    (setting(TOKENIZER_CONFIG, "add_eos_token", True), "puts no token at the end of a text, and"),
    (decoder("7", content="<x>"), "added_tokens_decoder.7 is {'content': '<x>'}; tokenizer.json"),
    (decoder("x", content="<x>"), "added_tokens_decoder.x is {'content': '<x>'}; tokenizer.json"),
    (decoder("7"), "added_tokens_decoder.7 is {}; an object with a text as content"),
    (
        decoder(str(PAD), content="<|image_pad|>", lstrip=True),
        "tokenizer_config.json: token '<|image_pad|>' takes the space around it",
    ),
    (setting(TOKENIZER, "post_processor", {"type": "BertProcessing"}), "ByteLevel and Template"),
    (setting(TOKENIZER, "post_processor", [1]), "ByteLevel and TemplateProcessing are supported"),
    (
        setting(TOKENIZER, "post_processor", template(SEQUENCE, END, END)),
        "at most a token at each end is supported",
    ),
    (
        setting(TOKENIZER, "post_processor", {"type": "TemplateProcessing", "single": 3}),
        "at most a token at each end is supported",
    ),
    (
        setting(TOKENIZER, "post_processor", template(SEQUENCE, END)),
        "adds <|endoftext|> to every text; profile jina-embeddings-v4 adds none",
    ),
    (setting(ADAPTER, "r", 8), "has rank 4; r is 8"),
    (without(ADAPTER, "r"), "r is missing; a whole number"),
    (setting(ADAPTER, "bias", "all"), "bias is 'all'; \"none\" is supported"),
    (setting(ADAPTER, "fan_in_fan_out", True), "fan_in_fan_out is True; only plain LoRA"),
    (setting(ADAPTER, "alpha_pattern", {"q_proj": 2}), "alpha_pattern is {'q_proj': 2}; only"),
    (setting(ADAPTER, "use_dora", True), "use_dora is True; only plain LoRA"),
    (setting(ADAPTER, "kasa_config", {"beta": 1e-4}), "kasa_config is {'beta': 0.0001}; only pl"),
    (setting(ADAPTER, "init_lora_weights", "pissa"), "init_lora_weights is 'pissa'; (None, True"),
    (setting(ADAPTER, "target_modules", ["q_proj"]), "is of a module that"),
    (setting(ADAPTER, "target_modules", r".*(q|k)_proj"), "is of a module that"),
    (setting(ADAPTER, "target_modules", "("), "target_modules is '('; it is no pattern: missing"),
    (setting(ADAPTER, "target_modules", 3), "target_modules is 3; a list of strings"),
    (
        setting(ADAPTER, "target_modules", [*TARGETS, "fc1"]),
        "adapter_model.safetensors holds no fc1",
    ),
    (setting(ADAPTER, "exclude_modules", ["up_proj"]), "is of a module that"),
    (setting(ADAPTER, "layers_to_transform", [0, 1]), "is of a module that"),
    (setting(ADAPTER, "layers_to_transform", "x"), "layers_to_transform is 'x'; a list of whole"),
    (setting(ADAPTER, "layers_pattern", "h"), "layers_pattern is 'h'; \"layers\" is supported"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_refused(change: Damage, words: str, folder: Path, tmp_path: Path) -> None:
    change(folder)
    with pytest.raises(ModelLoadError) as caught:
        convert(folder, tmp_path / "out")
    assert words in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["jina"]


SAME: list[Damage] = [
    setting(CONFIG, TEXT + "hidden_act", "silu"),
    setting(CONFIG, TEXT + "layer_types", ["full_attention"] * 3),
    setting(CONFIG, TEXT + "sliding_window", 9),  # not in use
    setting(CONFIG, VISION + "hidden_act", "silu"),
    without(CONFIG, "image_token_id"),
    setting(PICTURES, "do_pad", None),
    setting(PICTURES, "resample", 3),
    setting(PICTURES, "rescale_factor", 0.00392156862745098),
    setting(PICTURES, "image_processor_type", "Qwen2VLImageProcessorFast"),
    without(PICTURES, "patch_size"),
    setting(TOKENIZER, "model.dropout", None),
    setting(TOKENIZER, "post_processor", None),
    setting(TOKENIZER, "post_processor", {"type": "Sequence", "processors": [BYTES]}),
    setting(ADAPTER, "bias", None),
    setting(ADAPTER, "init_lora_weights", "gaussian"),
    setting(ADAPTER, "target_modules", "all-linear"),
    setting(ADAPTER, "target_modules", TARGETS),
    setting(ADAPTER, "layers_to_transform", []),
    both(
        setting(ADAPTER, "target_modules", TARGETS),
        setting(ADAPTER, "layers_to_transform", [0, 1, 2]),
        setting(ADAPTER, "layers_pattern", "layers"),
    ),
    setting(ADAPTER, "target_modules", r".*(model).*_proj|multi_vector_projector"),
    without(CONFIG, VISION + "window_size"),
    setting(CONFIG, VISION + "rope_parameters", {"rope_type": "axial", "rope_theta": 10000.0}),
    setting(CONFIG, VISION + "in_chans", 3),
    setting(CONFIG, TEXT + "head_dim", None),
    setting(CONFIG, TEXT + "is_causal", True),
    setting(CONFIG, "hidden_act", "gelu"),  # counts in text_config alone
    setting(CONFIG, "truncate_dim", None),
    without(PICTURES, "image_mean"),
    setting(PICTURES, "size", {"min_pixels": 3136, "max_pixels": 602_112}),
    setting(TOKENIZER, "model.unk_token", "<|endoftext|>"),
    decoder(str(PAD), content="<|image_pad|>", lstrip=False, special=True),
    setting(TOKENIZER_CONFIG, "add_prefix_space", False),
    setting(TOKENIZER_CONFIG, "tokenizer_class", "TokenizersBackend"),
]


@pytest.mark.parametrize("change", SAME)
def test_taken_and_the_same(change: Damage, jina: Path, folder: Path, tmp_path: Path) -> None:
    change(folder)
    mine, plain = (
        convert(source, tmp_path / name) for source, name in ((folder, "a"), (jina, "b"))
    )
    for path in plain.glob("*.gguf"):
        assert (mine / path.name).read_bytes() == path.read_bytes()


def test_what_is_missing_and_no_tensor_shows(folder: Path, tmp_path: Path) -> None:
    """Transformers' defaults."""
    for key in ("rms_norm_eps", "rope_theta", "max_position_embeddings"):
        without(CONFIG, TEXT + key)(folder)
    fields = gguf.GGUFReader(convert(folder, tmp_path / "out") / "text.gguf").fields
    found = [
        fields[f"qwen2vl.{key}"].contents()
        for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base", "context_length")
    ]
    assert found == [pytest.approx(1e-5), 1e6, 32_768]


def test_of_two_objects_for_the_positions_the_older_counts(folder: Path, tmp_path: Path) -> None:
    section = list(MODEL.mrope_section)
    for older, theta in (({"mrope_section": section, "rope_theta": 5.0}, 5.0), (None, 7.0)):
        setting(CONFIG, TEXT + "rope_scaling", older)(folder)
        newer = {"mrope_section": section, "rope_theta": 7.0}
        setting(CONFIG, TEXT + "rope_parameters", newer)(folder)
        out = convert(folder, tmp_path / str(theta))
        found = gguf.GGUFReader(out / "text.gguf").fields["qwen2vl.rope.freq_base"].contents()
        assert found == theta


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (
            checkpoint.PLAIN,
            setting(CONFIG, "model_type", "qwen2_vl"),
            "model_type is 'qwen2_vl'; \"qwen2_5_vl\" is supported",
        ),
        (
            checkpoint.PLAIN,
            setting(TOKENIZER_CONFIG, "add_bos_token", True),
            "puts no token at the begin of a text, and",
        ),
        (
            checkpoint.COLQWEN_HF,
            setting(TOKENIZER_CONFIG, "add_bos_token", True),
            "add_bos_token is true; there is no bos_token",
        ),
        (
            checkpoint.COLQWEN_HF,
            setting(CONFIG, "embedding_dim", 12),
            "embedding_proj_layer.weight has shape [24, 64]; config.json asks for [12, 64]",
        ),
        (checkpoint.COLQWEN_HF, without(CONFIG, "embedding_dim"), "asks for [128, 64]"),
    ],
)
def test_of_other_architectures(
    kind: checkpoint.Kind, change: Damage, words: str, tmp_path: Path
) -> None:
    source = checkpoint.write(MODEL, tmp_path / "in", kind)
    change(source)
    with pytest.raises(ModelLoadError) as caught:
        convert(source, tmp_path / "out")
    assert words in str(caught.value)


def test_an_adapter_beside_the_weights(folder: Path, tmp_path: Path) -> None:
    """Transformers adds it."""
    checkpoint.write_json(folder / "adapter_config.json", checkpoint.ADAPTER_CONFIG)
    with pytest.raises(ModelLoadError, match=r"an adapter beside config\.json is not supported"):
        convert(folder, tmp_path / "out")
    assert convert(folder, tmp_path / "out", use_adapters=False).is_dir()


def limits(out: Path) -> tuple[int, int]:
    fields = gguf.GGUFReader(out / "mmproj.gguf").fields
    least, most = (fields[f"clip.vision.image_{key}_pixels"].contents() for key in ("min", "max"))
    return least, most


def test_of_two_files_the_one_of_the_processor_counts(folder: Path, tmp_path: Path) -> None:
    """If it tells of pictures, as transformers reads them."""
    nested = json.loads((folder / PICTURES).read_text()) | {"max_pixels": 12_544}
    for written, most in (
        ({"processor_class": "X"}, 602_112),
        ({"image_processor": nested}, 12_544),
    ):
        checkpoint.write_json(folder / NESTED, written)
        assert limits(convert(folder, tmp_path / str(most))) == (3136, most)
    checkpoint.write_json(folder / NESTED, {"image_processor": 3})
    with pytest.raises(ModelLoadError, match="image_processor is 3; an object is needed"):
        convert(folder, tmp_path / "out")


def test_a_token_at_the_end_of_every_text(tmp_path: Path) -> None:
    """Where the profile adds it, too: Qwen3-VL-Embedding's."""
    source = qwen3_checkpoint.write(tmp_path / "Qwen3-VL-Embedding")
    setting(TOKENIZER, "post_processor", template(SEQUENCE, END))(source)
    setting("tokenizer_config.json", "eos_token", "<|endoftext|>")(source)
    out = convert(source, tmp_path / "out")
    with Embedder(out, n_threads=1) as embedder:
        assert embedder.profile.name == "qwen3-vl-embedding"
        sequence = embedder._kinds.query("retrieval").place("a page").sequence
        words = gguf.GGUFReader(out / "text.gguf").fields["tokenizer.ggml.tokens"].contents()
        assert words[sequence.token_ids()[-1]] == "<|endoftext|>"


def test_arguments_are_checked_before_anything_is_written(jina: Path, tmp_path: Path) -> None:
    for options, words in (
        ({"min_pixels": 10**6}, "min_pixels=1000000 is above max_pixels=602112"),
        ({"min_pixels": 2**20, "max_pixels": 2**10}, "min_pixels=1048576 is above"),
        ({"profile": "jina"}, "profile is 'jina'; known profiles are"),
        ({"profile": "gme-qwen2-vl"}, "there is an adapter for 'text-matching'"),
    ):
        with pytest.raises(InputError, match=words):
            convert(jina, tmp_path / "out", **options)
        assert not list(tmp_path.iterdir())


def test_tasks_that_the_profile_does_not_know(folder: Path, tmp_path: Path) -> None:
    tasks = ("retrieval", "text-matching", "summary")
    setting(CONFIG, "task_names", list(tasks))(folder)
    path = folder / "adapters" / "adapter_model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length].replace(b".code.", b".summary.")
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])
    for merge in (None, "summary"):
        with pytest.raises(InputError, match="there is an adapter for 'summary'; profile jina"):
            convert(folder, tmp_path / "out", merge=merge)
    assert convert(folder, tmp_path / "out", merge="retrieval").is_dir()


def test_files_of_ones_own_are_kept(jina: Path, tmp_path: Path) -> None:
    out = convert(jina, tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    (out / "pages").mkdir()
    with pytest.raises(InputError, match=r"out holds notes\.txt, pages, which its jmm\.json does"):
        convert(jina, out, overwrite=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "text.gguf").exists()


# What transformers 4.49 leaves in the config.json of two models of 3 and 2 thousand million weights
# when it saves them: no key of vision_config that equals its class's default.
SAVED_AGAIN = {
    "Qwen2_5_VLForConditionalGeneration": (
        {"hidden_size": 1280, "in_chans": 3, "out_hidden_size": 2048, "spatial_patch_size": 14},
        VisionConfig(1280, 3420, 32, 16, 14, 112, [7, 15, 23, 31]),
    ),
    "Qwen2VLForConditionalGeneration": (
        {"hidden_size": 2048, "in_chans": 3, "spatial_patch_size": 14},
        VisionConfig(1280, 5120, 32, 16, 14, None, None),
    ),
    "Qwen3VLForConditionalGeneration": (
        {"out_hidden_size": 2048},
        VisionConfig(1152, 4304, 27, 16, 16, None, None, 2304, (8, 16, 24)),
    ),
}


@pytest.mark.parametrize("architecture", SAVED_AGAIN)
def test_a_configuration_without_its_defaults(architecture: str, tmp_path: Path) -> None:
    written, expected = SAVED_AGAIN[architecture]
    text = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8}
    root = {"architectures": [architecture], "text_config": text, "vision_config": written}
    checkpoint.write_json(tmp_path / CONFIG, root)
    found = read_config(tmp_path)
    assert found.vision == expected
    assert found.text.vocab_size == (151_936 if found.text.is_qwen3 else 152_064)
    assert found.text.context_length == (128_000 if found.text.is_qwen3 else 32_768)


@pytest.mark.parametrize(
    ("folder_name", "noted", "profile", "reason"),
    [
        ("gme-Qwen2-VL-2B", None, "gme-qwen2-vl", "the folder's name is gme-Qwen2-VL-2B"),
        (
            "models--org--gme-Qwen2-VL-7B/snapshots/0a1b",
            None,
            "gme-qwen2-vl",
            "the repo's folder is models--org--gme-Qwen2-VL-7B",
        ),
        (
            "0a1b",
            "org/gme-Qwen2-VL-2B",
            "gme-qwen2-vl",
            "_name_or_path in config.json is org/gme-Qwen2-VL-2B",
        ),
        ("0a1b", "org/Qwen2-VL-2B", "qwen2.5-vl", "general.architecture is 'qwen2vl'"),
        ("0a1b", 7, "qwen2.5-vl", "general.architecture is 'qwen2vl'"),
    ],
)
def test_the_profile_by_the_names_of_a_model(
    folder_name: str,
    noted: object,
    profile: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = checkpoint.write(tiny.MODELS["qwen2_small"], tmp_path / folder_name)
    setting(CONFIG, "_name_or_path", noted)(source)
    assert cli.main(["convert", str(source), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: profile {profile} ({reason})\n"
    manifest = json.loads((tmp_path / "out" / "jmm.json").read_text())
    assert (manifest["profile"], manifest["profile_reason"]) == (profile, reason)


def test_a_profile_of_other_models(jina: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="profile gemma3 is for models of another kind"):
        convert(jina, tmp_path / "out", profile="gemma3", merge="retrieval")


def test_auto_keeps_each_tensors_own_type(folder: Path, tmp_path: Path) -> None:
    """Of embeddings in BF16 and layers in F32."""
    weights = tiny.weights(MODEL) | checkpoint.projector(MODEL)
    named = {checkpoint.rename(name, checkpoint.JINA): value for name, value in weights.items()}
    first = "model.embed_tokens.weight"
    parts = {"a": {first: named.pop(first)}, "b": named}
    for (name, part), dtype in zip(parts.items(), ("BF16", "F32"), strict=True):
        checkpoint.save(part, folder / f"{name}.safetensors", dtype)
    (folder / "model.safetensors").unlink()
    index = {key: f"{name}.safetensors" for name, part in parts.items() for key in part}
    checkpoint.write_json(folder / "model.safetensors.index.json", {"weight_map": index})
    out = convert(folder, tmp_path / "out", use_adapters=False)
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(out / "text.gguf").tensors}
    assert found["token_embd.weight"].tensor_type.name == "BF16"
    assert found["blk.0.ffn_up.weight"].tensor_type.name == "F32"
    np.testing.assert_array_equal(
        found["blk.0.ffn_up.weight"].data,
        weights["model.language_model.layers.0.mlp.up_proj.weight"],
    )
    assert json.loads((out / "jmm.json").read_text())["types"]["text"] == "f32"


@pytest.mark.parametrize(
    "head",
    [
        "license: mit",
        "license: {a: 1}",
        "license: 5\nmodel_name: 7",
        "license: [mit, 3]\nbase_model: '1'",
        "a: b: c",
        "!!python/object:os.system {}",
        "tags: [{x: 1}]",
        'model_name: "\\ud800"',
    ],
)
def test_a_card_is_no_reason_to_refuse(head: str, folder: Path, tmp_path: Path) -> None:
    for path in (folder / "README.md", folder / "adapters" / "README.md"):
        path.write_text(f"---\n{head}\n---\n")
    command = [
        sys.executable,
        "-m",
        "jmm",
        "convert",
        "--quiet",
        str(folder),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    licences = gguf.GGUFReader(tmp_path / "out" / "text.gguf").fields.get("general.license")
    assert (licences is not None) is (head == "license: mit")
