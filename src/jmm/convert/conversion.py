"""A checkpoint to a folder of GGUF files: conducts the stages."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import gguf

from jmm import arguments, bundle, profiles
from jmm.convert import adapters, config, gguf_file, layout, output, pictures, tensors, tokenizer
from jmm.convert.adapters import Adapters
from jmm.convert.config import Config
from jmm.convert.gguf_file import Entry, FileType
from jmm.convert.json_file import opened
from jmm.convert.pictures import PictureConfig
from jmm.convert.tensors import Tensor
from jmm.errors import InputError, ModelLoadError, OutOfMemoryError
from jmm.files import ModelFiles
from jmm.gguf_header import MERGE_SIZE
from jmm.processor import Processor
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
    source, target = _path("checkpoint", checkpoint), Path(os.path.abspath(_path("out", out)))
    whole = None if base is None else _path("base", base)
    for name, value in (
        ("use_adapters", use_adapters),
        ("overwrite", overwrite),
        ("show_progress", show_progress),
    ):
        arguments.flag(name, value)
    for name, kind in (
        ("text_type", text_type),
        ("vision_type", vision_type),
        ("adapter_type", adapter_type),
    ):
        if kind not in TYPES:
            raise InputError(f"{name} is {kind!r}; allowed are {', '.join(TYPES)}")
    if merge is not None and not use_adapters:
        raise InputError(f"merge is {merge!r} with use_adapters=False; one excludes the other")
    if base is not None and not use_adapters:
        raise InputError("base is given with use_adapters=False; convert that folder instead")
    least, most = (
        None if limit is None else arguments.whole(name, limit, 1)
        for name, limit in (("min_pixels", min_pixels), ("max_pixels", max_pixels))
    )
    output.check_apart(target, (source, *([] if whole is None else [whole])))
    output.check_absent(target, overwrite=overwrite)
    model = _Model.read(source, whole, use_adapters=use_adapters, merge=merge)
    choice = _choose(model, profile)
    chosen = choice.profile
    model.check(chosen)
    Processor.of(model.limits, chosen, least, most)  # checks them as `Embedder` will
    types = _types(model, text_type, vision_type, adapter_type)
    asked = {"text": text_type, "vision": vision_type, "adapters": adapter_type}
    files = list(_files(model, types, asked, chosen))
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
            "profile_reason": choice.reason,
            "min_pixels": _first(least, chosen.min_pixels, model.pictures.min_pixels),
            "max_pixels": _first(most, chosen.max_pixels, model.pictures.max_pixels),
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


def _path(name: str, value: object) -> Path:
    """An argument as the path of a folder, which need not be there."""
    found = arguments.path(name, value)
    try:
        found.exists()
    except OSError as error:
        raise InputError(f"{name} is {value!r}: {error.strerror}") from None
    return found


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
        if use_adapters:
            adapters.check_named(base, settings.tasks)
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
            pictures.read_pictures(
                folder if pictures.has_pictures(folder) else base, settings.vision.patch
            ),
            tokenizer.read_vocabulary(
                folder if os.path.exists(folder / tokenizer.FILE) else base,
                settings.text.vocab_size,
            ),
            found,
            loras,
            merge,
        )

    def check(self, profile: profiles.Profile) -> None:
        """Raises ModelLoadError or InputError unless the profile can serve the model."""
        if not profile.markers:
            raise InputError(f"profile {profile.name} is for models of another kind than Qwen-VL")
        self.vocabulary.check_holds(profile.specials, f"profile {profile.name}")
        self.vocabulary.check_ids(self.config.markers, self.base / "config.json")
        self.vocabulary.check_ends(profile.add_special, f"profile {profile.name}")
        if self.adapters is not None:
            profile.check_tasks([self.merged] if self.merged else filter(None, self.adapters.tasks))

    @property
    def limits(self) -> dict[str, int]:
        """The checkpoint's limits of a picture's area, by their keys in the tower's file."""
        found = {"min": self.pictures.min_pixels, "max": self.pictures.max_pixels}
        return {
            f"clip.vision.image_{name}_pixels": value
            for name, value in found.items()
            if value is not None
        }

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
        names += pictures.FILES
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
    model: _Model,
    types: Mapping[str, FileType],
    asked: Mapping[str, Type],
    profile: profiles.Profile,
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
                asked["text"],
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
            Entry.of(target, model.tensors[target.source], asked["vision"])
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
                    asked["adapters"],
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
    vision = model.config.vision
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
    writer.add_vision_image_mean(model.pictures.image_mean)
    writer.add_vision_image_std(model.pictures.image_std)
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
    for key, value in model.limits.items():
        writer.add_uint32(key, value)
    writer.add_string("jmm.profile", profile.name)


def _adapter_keys(writer: Any, alpha: float) -> None:
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)


def _choose(model: _Model, name: str | None) -> profiles.Choice:
    """The profile: the one asked for, the architecture's, or that of a model of this name."""
    if name is not None:
        return profiles.choose({}, name)
    architecture = model.config.architecture
    if architecture in _PROFILES:
        return profiles.Choice(_PROFILES[architecture], f"the architecture is {architecture}")
    snapshot = Path(os.path.realpath(model.folder))  # models--org--name/snapshots/commit
    for what, noted in (
        ("the folder's name", gguf_file.name_of(model.folder)),
        ("the repo's folder", snapshot.parents[1].name if len(snapshot.parents) > 1 else ""),
        ("_name_or_path in config.json", model.config.name),
    ):
        found = profiles.by_name(noted) if noted else None
        if found is not None:
            return profiles.Choice(found, f"{what} is {noted}")
    return profiles.choose({"general.architecture": model.text_architecture})


def _types(model: _Model, text: Type, vision: Type, lora: Type) -> dict[str, FileType]:
    """What each file says its matrices are; under "auto" what most of its numbers are."""
    sources = {
        "text": [target.source for target in layout.text(model.config, model.tensors)],
        "vision": [t.source for t in layout.vision(model.config.vision, model.config.text)],
    }
    found = {
        name: _commonest(model.tensors[source] for source in sources[name])
        if asked == "auto"
        else asked
        for name, asked in (("text", text), ("vision", vision))
    }
    if model.adapters is not None:
        pairs = [pair for of_task in model.adapters.tasks.values() for pair in of_task.values()]
        halves = (half for pair in pairs for half in (pair.low, pair.high))
        found["adapters"] = _commonest(halves) if lora == "auto" else lora
    return found


def _commonest(sources: Iterable[Tensor]) -> FileType:
    counts: Counter[FileType] = Counter()
    for source in sources:
        counts[gguf_file.file_type_of(source)] += math.prod(source.shape)
    return counts.most_common(1)[0][0]


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _sha256(path: Path, advance: Callable[[int], object]) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(_READ):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
