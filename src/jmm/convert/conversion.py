"""A checkpoint to a folder of GGUF files: conducts the stages."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gguf

from jmm import arguments, bundle, profiles
from jmm.convert import adapters, config, gguf_file, layout, output, tensors, tokenizer
from jmm.convert.adapters import Adapters
from jmm.convert.config import Config, PictureConfig
from jmm.convert.gguf_file import Entry, FileType
from jmm.convert.json_file import opened
from jmm.convert.tensors import Tensor
from jmm.errors import InputError, ModelLoadError, OutOfMemoryError
from jmm.files import ModelFiles
from jmm.gguf_header import MERGE_SIZE
from jmm.progress import progress_bar

Type: TypeAlias = Literal["auto", "f32", "f16", "bf16", "q8_0"]
TYPES: tuple[Type, ...] = ("auto", "f32", "f16", "bf16", "q8_0")

TEXT_FILE = "text.gguf"
MMPROJ_FILE = "mmproj.gguf"

_PROFILES = {
    config.JINA_V4: profiles.JINA_V4,
    "ColQwen2": profiles.COLQWEN2,
    "ColQwen2_5": profiles.COLQWEN2_5,
    "ColQwen2ForRetrieval": profiles.COLQWEN2_HF,
}
_ARCHITECTURES = {"qwen2_vl": "qwen2vl", "qwen2_5_vl": "qwen2vl", "qwen3_vl": "qwen3vl"}
_IMAGE_SIZE = 560  # upstream's value; the towers have no fixed size
_VISION_EPS = 1e-6  # a constant of transformers' vision towers
_READ = 1 << 22


@contextmanager
def _memory_told() -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise OutOfMemoryError(f"no memory to convert: {str(error) or 'malloc failed'}") from None


@_memory_told()
def convert(
    checkpoint: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    text_type: Type = "auto",
    vision_type: Type = "auto",
    adapter_type: Type = "auto",
    use_adapters: bool = True,
    merge: str | None = None,
    base: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    overwrite: bool = False,
    show_progress: bool = False,
) -> Path:
    """Converts a Hugging Face checkpoint.

    Reads and writes a piece of 16 MiB at a time: the memory it takes does not grow with the
    checkpoint, beyond the tokenizer and one adapter.

    Args:
        checkpoint: Folder with config.json, tokenizer.json, preprocessor_config.json, the
            weights as safetensors (one file, or several with their index), and ``adapters/``
            for jina-embeddings-v4. Or one with an adapter alone, and ``base``.
        out: Folder to make: ``text.gguf``, ``mmproj.gguf``, an ``adapter-<task>.gguf`` per task,
            and ``jmm.json``.
        text_type: Type of the language model's matrices. "auto" keeps the checkpoint's numbers;
            vectors and the multi-vector projector are f32 always.
        vision_type: Of the vision tower's matrices.
        adapter_type: Of the adapters' matrices.
        use_adapters: False leaves the adapters out.
        merge: A task whose adapter is added to the weights; no adapter file is written then.
        base: Folder of the model that an adapter alone belongs to, as ColQwen's are published:
            adapter_config.json and adapter_model.safetensors. The adapter is added to the weights.
        profile: Name of the model family; None takes it from the checkpoint.
        min_pixels: Least area of a picture after resizing, in pixels; None for the profile's
            or the checkpoint's.
        max_pixels: Greatest such area.
        overwrite: Whether a folder that `convert` has made earlier may be replaced.
        show_progress: True draws a progress bar on stderr.

    Returns:
        ``out``. It is there whole, or (after an error) not at all.

    Raises:
        ModelLoadError: A file or tensor is missing, damaged, unknown, or holds NaN.
        InputError: An argument is not allowed, ``out`` exists, or the disk has no room.
        OutOfMemoryError: There is no memory for a piece, the tokenizer or an adapter.

    Example:
        >>> convert("jina-embeddings-v4", "jina-v4", vision_type="f32")  # doctest: +SKIP
        >>> Embedder("jina-v4")  # doctest: +SKIP
    """
    source = arguments.path("checkpoint", checkpoint, "folder")
    target = Path(os.path.abspath(arguments.path("out", out, "folder")))
    whole = None if base is None else arguments.path("base", base, "folder")
    for name, value in (
        ("text_type", text_type),
        ("vision_type", vision_type),
        ("adapter_type", adapter_type),
    ):
        if value not in TYPES:
            raise InputError(f"{name} is {value!r}; allowed are {', '.join(TYPES)}")
    if merge is not None and not use_adapters:
        raise InputError(f"merge is {merge!r} with use_adapters=False; one excludes the other")
    if base is not None and not use_adapters:
        raise InputError("base is given with use_adapters=False; convert that folder instead")
    least, most = (
        None if value is None else arguments.whole(name, value, 1)
        for name, value in (("min_pixels", min_pixels), ("max_pixels", max_pixels))
    )
    output.check_absent(target, overwrite=overwrite)
    output.check_apart(target, (source, *([] if whole is None else [whole])))
    model = _Model.read(source, whole, use_adapters=use_adapters, merge=merge)
    chosen = _choose(model, profile)
    model.vocabulary.check_holds(chosen.specials, f"profile {chosen.name}")
    least = _first(least, chosen.min_pixels, model.pictures.min_pixels)
    most = _first(most, chosen.max_pixels, model.pictures.max_pixels)
    if least is not None and most is not None and most < least:
        raise InputError(f"max_pixels is {most:,}, below min_pixels, {least:,}")
    types = _types(model, text_type, vision_type, adapter_type)
    files = list(_files(model, types, chosen))
    hashed = model.sources()
    n_bytes = sum(entry.n_bytes for file in files for entry in file.entries)
    output.check_space(target, n_bytes)
    with (
        output.folder(target, overwrite=overwrite) as folder,
        progress_bar(
            n_bytes + sum(path.stat().st_size for path in hashed.values()),
            shown=show_progress,
            unit="B",
        ) as advance,
    ):
        for file in files:
            gguf_file.write(
                folder / file.name,
                file.architecture,
                file.kind,
                file.card,
                file.entries,
                file.settings,
                advance,
            )
        loras = {file.task: file.name for file in files if file.task is not None}
        manifest = {
            "format": bundle.FORMAT,
            "model": TEXT_FILE,
            "mmproj": MMPROJ_FILE,
            "adapters": loras,
            "merged": merge,
            "profile": chosen.name,
            "min_pixels": least,
            "max_pixels": most,
            "dim": model.config.text.hidden,
            "multi_vector_dim": model.projector_dim,
            "dims": model.config.dims,
            "types": types,
            "architecture": model.config.architecture,
            "source": {
                name: {
                    "size": path.stat().st_size,
                    "sha256": _sha256(path, advance),
                }
                for name, path in hashed.items()
            },
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (folder / bundle.MANIFEST).write_text(f"{text}\n", encoding="utf-8")
        _check(folder)
    return target


def _check(folder: Path) -> None:
    """Reads settings and headers as `Embedder` will, so that what is written can be loaded."""
    try:
        given = bundle.open_bundle(folder).arguments
        ModelFiles.read(given["model"], given["mmproj"], given["adapters"], None)
    except ModelLoadError as error:
        said = error.message.replace(f"{folder}{os.sep}", "")
        raise ModelLoadError(f"the checkpoint gives files that cannot be loaded: {said}") from None


@dataclass(frozen=True)
class _Model:
    """All that is read before anything is written.

    ``adapters`` are written as files, unless one of them, ``merged``, is added to the weights.
    """

    folder: Path
    base: Path
    config: Config
    pictures: PictureConfig
    vocabulary: tokenizer.Vocabulary
    tensors: Mapping[str, Tensor]
    adapters: Adapters | None
    merged: str | None

    @classmethod
    def read(
        cls, folder: Path, base: Path | None, *, use_adapters: bool, merge: str | None
    ) -> _Model:
        config.check_folder(folder)
        name = adapters.base_of(folder)
        if base is None:
            if name is not None:
                raise ModelLoadError(
                    f"{folder} holds an adapter alone; give the folder of its model"
                    f"{f', {name},' if name else ''} as base (--base)"
                )
            base = folder
        elif name is None:
            raise InputError(f"base is {base}, but {folder} holds no adapter alone")
        config.check_folder(base)
        settings = config.read_config(base)
        if base != folder and settings.tasks:
            raise InputError(f"base is {base}, which has adapters of its own")
        if merge is not None and merge not in settings.tasks:
            known = ", ".join(settings.tasks) or "none"
            raise InputError(f"merge is {merge!r}; the checkpoint's adapters are {known}")
        found = layout.resolve(base, tensors.find(base), settings)
        loras = None
        if base != folder:
            loras, merge = adapters.read_adapters(folder, adapters.ALONE, found), *adapters.ALONE
        elif use_adapters and settings.tasks:
            loras = adapters.read_adapters(folder / adapters.FOLDER, settings.tasks, found)
        return cls(
            folder,
            base,
            settings,
            config.read_pictures(folder if config.has_pictures(folder) else base),
            tokenizer.read_vocabulary(
                folder if os.path.exists(folder / tokenizer.FILE) else base,
                settings.text.vocab_size,
            ),
            found,
            loras,
            merge,
        )

    @property
    def text_architecture(self) -> str:
        """Of the language model's file and its adapters."""
        return _ARCHITECTURES[self.config.family]

    @property
    def projector_dim(self) -> int | None:
        """Components of a token's vector, None without a projector."""
        weight = self.tensors.get(f"{layout.PROJECTOR}.weight")
        return None if weight is None else weight.shape[0]

    def sources(self) -> dict[str, Path]:
        """The files that the result is made of, by name; those of `base` as ``base/...``."""
        names = ["config.json", "tokenizer.json", "tokenizer_config.json"]
        names += ["preprocessor_config.json", "processor_config.json"]
        found = {folder / name for name in names for folder in (self.folder, self.base)}
        found |= {tensor.path for tensor in self.tensors.values()}
        if self.adapters is not None:
            lora = self.folder / adapters.FOLDER if self.base == self.folder else self.folder
            found |= {lora / name for name in (adapters.WEIGHTS, adapters.CONFIG)}
        named = {}
        for path in sorted(filter(os.path.isfile, found)):
            if path.is_relative_to(self.folder):
                named[path.relative_to(self.folder).as_posix()] = path
            else:
                named[f"base/{path.relative_to(self.base).as_posix()}"] = path
        return named


@dataclass(frozen=True)
class _File:
    name: str
    architecture: str
    kind: Literal["model", "mmproj", "adapter"]
    card: Path
    entries: list[Entry]
    settings: Callable[[Any], None]
    task: str | None = None


def _files(
    model: _Model, types: Mapping[str, FileType], profile: profiles.Profile
) -> Iterator[_File]:
    targets = list(layout.text(model.config, model.tensors))
    merged = {}
    if model.merged is not None and model.adapters is not None:
        merged = dict(model.adapters.tasks[model.merged])
    alpha = 0.0 if model.adapters is None else model.adapters.alpha
    yield _File(
        TEXT_FILE,
        model.text_architecture,
        "model",
        model.folder,
        [
            Entry.of(
                target,
                model.tensors[target.source],
                types["text"],
                merged[target.source].change(alpha) if target.source in merged else None,
            )
            for target in targets
        ],
        lambda writer: _text_keys(writer, model, types["text"], profile),
    )
    yield _File(
        MMPROJ_FILE,
        "clip",
        "mmproj",
        model.folder,
        [
            Entry.of(target, model.tensors[target.source], types["vision"])
            for target in layout.vision(model.config.vision, model.config.text)
        ],
        lambda writer: _vision_keys(writer, model, types["vision"], profile),
    )
    if model.adapters is None or model.merged is not None:
        return
    for task, pairs in model.adapters.tasks.items():
        yield _File(
            f"adapter-{task}.gguf",
            model.text_architecture,
            "adapter",
            model.folder / adapters.FOLDER,
            [
                entry
                for target in targets
                if target.source in pairs
                for entry in gguf_file.lora_entries(
                    target.name,
                    (pairs[target.source].low, pairs[target.source].high),
                    types["adapters"],
                )
            ],
            lambda writer: _adapter_keys(writer, alpha),
            task,
        )


def _text_keys(writer: Any, model: _Model, file_type: FileType, profile: profiles.Profile) -> None:
    text = model.config.text
    writer.add_block_count(text.layers)
    writer.add_context_length(text.context_length)
    writer.add_embedding_length(text.hidden)
    writer.add_feed_forward_length(text.ffn)
    writer.add_head_count(text.heads)
    writer.add_head_count_kv(text.kv_heads)
    writer.add_rope_dimension_sections([*text.mrope_section, 0])
    writer.add_rope_freq_base(text.rope_theta)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    if text.head_dim is not None:
        writer.add_key_length(text.head_dim)
        writer.add_value_length(text.head_dim)
    if text.is_qwen3:
        writer.add_num_deepstack_layers(len(model.config.vision.deepstack))
    writer.add_file_type(gguf_file.FILE_TYPES[file_type])
    writer.add_string("jmm.profile", profile.name)
    model.vocabulary.add_to(writer)


def _vision_keys(
    writer: Any, model: _Model, file_type: FileType, profile: profiles.Profile
) -> None:
    vision, pictures = model.config.vision, model.pictures
    writer.add_file_type(gguf_file.FILE_TYPES[file_type])
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(model.config.text.hidden)
    n_positions = vision.n_positions
    writer.add_vision_image_size(
        _IMAGE_SIZE if n_positions is None else math.isqrt(n_positions) * vision.patch
    )
    writer.add_vision_patch_size(vision.patch)
    writer.add_vision_embedding_length(vision.hidden)
    # Of a Qwen2-VL tower llama.cpp writes its output width here; nothing reads it.
    is_qwen2 = model.config.family == "qwen2_vl"
    writer.add_vision_feed_forward_length(model.config.text.hidden if is_qwen2 else vision.ffn)
    writer.add_vision_block_count(vision.layers)
    writer.add_vision_head_count(vision.heads)
    writer.add_vision_image_mean(pictures.image_mean)
    writer.add_vision_image_std(pictures.image_std)
    if vision.n_positions is not None:
        writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN3VL)
        writer.add_vision_use_gelu(True)
        writer.add_vision_spatial_merge_size(MERGE_SIZE)
        writer.add_vision_is_deepstack_layers([i in vision.deepstack for i in range(vision.layers)])
    elif vision.window is None or vision.full_layers is None:
        writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN2VL)
    else:
        writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN25VL)
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(vision.full_layers[0] + 1)
        writer.add_uint32("clip.vision.window_size", vision.window)
    writer.add_vision_attention_layernorm_eps(_VISION_EPS)
    for key in ("min_pixels", "max_pixels"):
        if getattr(pictures, key) is not None:
            writer.add_uint32(f"clip.vision.image_{key}", getattr(pictures, key))
    writer.add_string("jmm.profile", profile.name)


def _adapter_keys(writer: Any, alpha: float) -> None:
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)


def _choose(model: _Model, name: str | None) -> profiles.Profile:
    if name is None and model.config.architecture in _PROFILES:
        return _PROFILES[model.config.architecture]
    metadata = {
        "general.architecture": model.text_architecture,
        "general.name": gguf_file.name_of(model.folder),
    }
    return profiles.choose(metadata, name).profile


def _types(model: _Model, text: Type, vision: Type, lora: Type) -> dict[str, FileType]:
    first = model.tensors["embed_tokens.weight"], model.tensors["visual.patch_embed.proj.weight"]
    found = {
        "text": gguf_file.file_type_of(first[0]) if text == "auto" else text,
        "vision": gguf_file.file_type_of(first[1]) if vision == "auto" else vision,
    }
    if model.adapters is not None:
        pair = next(iter(next(iter(model.adapters.tasks.values())).values()))
        found["adapters"] = gguf_file.file_type_of(pair.low) if lora == "auto" else lora
    return found


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _sha256(path: Path, advance: Callable[[int], object]) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(_READ):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
