"""The header of one GGUF file, and what can be asked of it."""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jmm.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

Shape: TypeAlias = "tuple[int, ...]"

CHANNELS = 3
PROJECTOR_TYPE = ("clip.projector_type", "clip.vision.projector_type")
_NO_WEIGHTS = frozenset(("i8", "i16", "i32", "i64", "f64"))
_SAMPLE_BYTES = 64
_N_SAMPLES = 16  # of a tensor
# The architecture is in the names of the other keys.
_DESCRIPTIONS = ("general.", "quantize.", "split.", "tokenizer.chat_template")
_FLOATS = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


@dataclass(frozen=True)
class Header:
    """The header of one GGUF file.

    Attributes:
        path: Where the file lies.
        types: ``{key: GGUF type name}``.
        metadata: ``{key: value}`` as `_core.read_gguf` gives it.
        shapes: ``{tensor name: ne}``, four numbers, fastest first.
        dtypes: ``{tensor name: ggml type name}``.
        ends: ``{tensor name: offset one past its last byte}``.
        starts: ``{tensor name: offset of its first byte}``.
        parts: ``{tensor name: path}`` of the tensors that lie in another file.
    """

    path: str
    types: Mapping[str, str]
    metadata: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    ends: Mapping[str, int]
    starts: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: str,
        metadata: Mapping[str, tuple[str, Any]],
        tensors: Mapping[str, tuple[str, Shape, int, int]],
    ) -> Header:
        """Builds it from what `_core.read_gguf` returns.

        Raises:
            ModelLoadError: The file ends before its tensors do, or a tensor is empty.
        """
        for name, (_, shape, _, _) in tensors.items():
            if 0 in shape:
                raise ModelLoadError(f"{path}: tensor {name} has shape {shape}; it holds nothing")
        size = Path(path).stat().st_size
        end = max((end for *_, end in tensors.values()), default=0)
        if end > size:
            raise ModelLoadError(
                f"{path}: the file is cut short: it has {size:,} bytes and its header promises "
                f"{end:,}; copy or download it again"
            )
        return cls(
            path,
            {key: kind for key, (kind, _) in metadata.items()},
            {key: value for key, (_, value) in metadata.items()},
            {name: shape for name, (_, shape, _, _) in tensors.items()},
            {name: dtype for name, (dtype, *_) in tensors.items()},
            {name: end for name, (*_, end) in tensors.items()},
            {name: start for name, (_, _, start, _) in tensors.items()},
        )

    @property
    def n_parts(self) -> int:
        """Files that the model is split into."""
        return self.positive("split.count") if "split.count" in self.types else 1

    def part_paths(self) -> list[str]:
        """Paths of the files after this one, the first of several.

        Raises:
            ModelLoadError: Its name is not that of a first part.
        """
        n_parts = self.n_parts
        if n_parts == 1:
            return []
        stem = self.path.removesuffix(f"-00001-of-{n_parts:05}.gguf")
        if stem == self.path:
            raise self.fail(
                f"it is one of {n_parts} parts of a model; pass the first, whose name must end in "
                f"-00001-of-{n_parts:05}.gguf"
            )
        return [f"{stem}-{part:05}-of-{n_parts:05}.gguf" for part in range(2, n_parts + 1)]

    def joined(self, others: Iterable[Header]) -> Header:
        """With the tensors of the model's other files."""
        shapes, dtypes, ends = dict(self.shapes), dict(self.dtypes), dict(self.ends)
        starts, parts = dict(self.starts), dict(self.parts)
        for other in others:
            for name in other.shapes:
                if name in shapes:
                    raise other.fail(f"tensor {name} lies in another part of the model too")
            shapes |= other.shapes
            dtypes |= other.dtypes
            ends |= other.ends
            starts |= other.starts
            parts |= dict.fromkeys(other.shapes, other.path)
        return replace(self, shapes=shapes, dtypes=dtypes, ends=ends, starts=starts, parts=parts)

    @property
    def architecture(self) -> str:
        """``general.architecture``, empty if the file has none."""
        return str(self.metadata.get("general.architecture", ""))

    def array(self, name: str, n_axes: int) -> npt.NDArray[np.float32]:
        """A small tensor's values, float32, slowest axis first.

        Raises:
            ModelLoadError: It is neither F32, F16 nor BF16, has more axes, or holds NaN or
                infinity.
        """
        dtype = _FLOATS.get(self.dtypes[name])
        if dtype is None:
            raise self.fail(
                f"tensor {name} has type {self.dtypes[name]}; f32, f16 or bf16 is needed"
            )
        shape = self.shapes[name][:n_axes][::-1]
        if math.prod(shape) != math.prod(self.shapes[name]):
            raise self.fail(
                f"tensor {name} has shape {self.shapes[name]}; {n_axes} axes are needed"
            )
        path = self.parts.get(name, self.path)
        stored = np.empty(math.prod(shape), dtype)
        # not np.fromfile: it goes on after what a signal handler raises in it (numpy 2.4)
        with Path(path).open("rb") as file:
            file.seek(self.ends[name] - stored.nbytes)
            if file.readinto(stored.data) < stored.nbytes:
                raise ModelLoadError(f"{path}: tensor {name} is cut short")
        if dtype == "<u2":  # bf16 is the upper half of a float32
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        values = stored.astype(np.float32).reshape(shape)
        if not np.isfinite(values).all():
            raise self.fail(f"tensor {name} holds NaN or infinity")
        return values

    def lora_scale(self, rank: int) -> float:
        """What the product of an adapter's pair is multiplied with."""
        alpha = float(self.metadata["adapter.lora.alpha"])
        return alpha / rank if alpha else 1.0

    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell this model, tower or adapter from others.

        Of its settings and its vocabulary, of the names, shapes and types of its tensors, and of
        bytes from evenly spaced places of each: a copy of the file has the same, another training
        or quantization has not. What describes the file and moves no vector does not count.
        """
        digest = hashlib.blake2b(digest_size=8)
        for key in sorted(self.metadata):
            if not key.startswith(_DESCRIPTIONS):
                digest.update(f"{key}={self.metadata[key]!r}\n".encode())
        with ExitStack() as stack:
            files = {
                path: stack.enter_context(Path(path).open("rb", buffering=0))
                for path in {self.path, *self.parts.values()}
            }
            for name in sorted(self.ends):
                digest.update(f"{name} {self.shapes[name]} {self.dtypes[name]}\n".encode())
                file = files[self.parts.get(name, self.path)]
                last = max(self.ends[name] - _SAMPLE_BYTES, 0)
                first = min(self.starts[name], last)
                for i in range(_N_SAMPLES):
                    file.seek(first + (last - first) * i // (_N_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
        return digest.hexdigest()

    def fail(self, why: str) -> ModelLoadError:
        """An error about this file."""
        return ModelLoadError(f"{self.path}: {why}")

    def check_dtypes(self, *, vectors: str | None = None) -> None:
        """Raises ModelLoadError for weights of a type that no kernel takes.

        Args:
            vectors: The one type that tensors of one axis may have, None for any.
        """
        for name, dtype in self.dtypes.items():
            is_vector = set(self.shapes[name][1:]) == {1}
            if dtype in _NO_WEIGHTS or (vectors and is_vector and dtype != vectors):
                needed = vectors if vectors and is_vector else "a float or quantized type"
                raise self.fail(f"tensor {name} has type {dtype}; {needed} is needed")

    def epsilon(self, key: str) -> None:
        """Raises ModelLoadError unless ``key`` is a finite float32, not below 0."""
        value = self.metadata.get(key)
        if self.types.get(key) != "f32" or not 0 <= float(value or 0.0) < math.inf:
            raise self.fail(f"{key} is {value!r}; a float from 0 on is needed")

    def numbers(self, key: str, *, above: float) -> None:
        """Raises ModelLoadError unless ``key`` holds three numbers above a limit.

        Numbers with which a pixel could leave float32's range are refused too.
        """
        values = self.metadata.get(key)
        if (
            not isinstance(values, list)
            or len(values) != CHANNELS
            or not all(above < value and is_moderate(value) for value in values)
        ):
            raise self.fail(
                f"{key} is {values!r}; three numbers above {above:g}, of a size from 1e-6 to 1e6, "
                "are needed"
            )

    def positive(self, key: str) -> int:
        """The value of ``key``, a whole number from 1 on that a C int holds."""
        value = self.metadata.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise self.fail(f"{key} is {value!r}; a whole number from 1 to 2**31 - 1 is needed")
        return value


def expect(header: Header, name: str, shape: Shape) -> None:
    """Raises ModelLoadError unless a tensor is there and has a shape."""
    found = header.shapes.get(name)
    if found is None:
        raise header.fail(f"tensor {name} is missing")
    wanted = shape + (1,) * (4 - len(shape))
    if found != wanted:
        raise header.fail(f"tensor {name} has shape {found}; {wanted} is needed")


def projector_type(metadata: Mapping[str, Any]) -> Any:
    """Kind of a vision tower by its file, None where it tells none."""
    return next((metadata[key] for key in PROJECTOR_TYPE if metadata.get(key)), None)


def is_moderate(value: float) -> bool:
    """Whether no pixel can leave float32's range by this mean or deviation."""
    return value == 0 or 1e-6 <= abs(value) <= 1e6


def check_readable(path: str) -> None:
    """Raises ModelLoadError unless ``path`` is a file that can be opened."""
    try:
        if not Path(path).exists():
            is_repo = not Path(path).suffix and len(Path(path).parts) == 2
            hint = "; Embedder.from_pretrained loads a repo of a hub" if is_repo else ""
            raise ModelLoadError(f"{path}: there is no such file{hint}")
        if not Path(path).is_file():
            raise ModelLoadError(f"{path}: {_no_file(Path(path))}")
        with Path(path).open("rb") as file:
            magic = file.read(4)
    except ModelLoadError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ModelLoadError(f"{path}: the file cannot be opened: {why}") from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path}: not a GGUF file: it starts with {magic!r} instead of b'GGUF'"
        )


def _no_file(path: Path) -> str:
    if (path / "config.json").exists():
        return "this is no file but a checkpoint; `jmm convert` makes GGUF files of it"
    if (path / "jmm.json").exists():
        return "this is the folder of a converted model; name one of its files, such as text.gguf"
    return "this is no file; a GGUF file, or a folder from `jmm convert`, is needed"
