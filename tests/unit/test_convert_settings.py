"""Settings that would give other vectors are honoured or refused; none is ignored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import pytest

from jmm import Embedder, InputError, ModelLoadError
from jmm.convert import convert
from support import checkpoint, qwen3_checkpoint
from support.damage import MODEL, Damage, edit, setting, without

TEXT, VISION = "text_config.", "vision_config."
CONFIG, PICTURES = "config.json", "preprocessor_config.json"
TOKENIZER, ADAPTER = "tokenizer.json", "adapters/adapter_config.json"
NESTED = "processor_config.json"


@pytest.fixture(scope="module")
def jina(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint.write(MODEL, tmp_path_factory.mktemp("jina") / "jina", checkpoint.JINA)


@pytest.fixture
def folder(jina: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(jina, tmp_path / "jina"))


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


def token(key: str) -> Damage:
    return edit(TOKENIZER, lambda root: root["added_tokens"][-1].__setitem__(key, True))


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
END = ("SpecialToken", "<|endoftext|>")
SEQUENCE = ("Sequence", "A")

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
    (setting(PICTURES, "do_resize", 1), "do_resize is 1; true is supported"),
    (setting(PICTURES, "do_center_crop", True), "do_center_crop is True; false is supported"),
    (setting(PICTURES, "resample", 2), "resample is 2; 3 is supported"),
    (setting(PICTURES, "rescale_factor", 0.5), "rescale_factor is 0.5; 1/255 is supported"),
    (setting(PICTURES, "rescale_factor", "x"), "rescale_factor is 'x'; 1/255 is supported"),
    (setting(PICTURES, "merge_size", 3), "merge_size is 3; 2 is supported"),
    (setting(PICTURES, "patch_size", 16), "patch_size is 16; 14 is supported"),
    (setting(PICTURES, "temporal_patch_size", 1), "temporal_patch_size is 1; 2 is supported"),
    (setting(PICTURES, "size", 224), "size is 224; an object with shortest_edge"),
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
    setting(PICTURES, "do_resize", None),
    setting(PICTURES, "resample", 3),
    setting(PICTURES, "rescale_factor", 0.00392156862745098),
    setting(PICTURES, "image_processor_type", "Qwen2VLImageProcessorFast"),
    without(PICTURES, "patch_size"),
    setting(TOKENIZER, "model.dropout", None),
    setting(TOKENIZER, "post_processor", None),
    setting(TOKENIZER, "post_processor", {"type": "Sequence", "processors": [BYTES]}),
    setting(ADAPTER, "bias", None),
]


@pytest.mark.parametrize("change", SAME)
def test_taken_and_the_same(change: Damage, jina: Path, folder: Path, tmp_path: Path) -> None:
    change(folder)
    mine, plain = (
        convert(source, tmp_path / name) for source, name in ((folder, "a"), (jina, "b"))
    )
    for path in plain.glob("*.gguf"):
        assert (mine / path.name).read_bytes() == path.read_bytes()


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
