"""GGUF files with other weights: copies of a file, and random ones in the shape of Qwen 2.5 0.5B.

python -m bench.language_models.files MODEL.gguf Q8_0 COPY.gguf
python -m bench.language_models.files qwen Q8_0 MODEL.gguf
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy

_QWEN = {"layers": 24, "width": 896, "wide": 4864, "heads": 14, "kept": 2, "vocabulary": 151936}


def copy_as(source: Path, kind: str, target: Path) -> None:
    """Copy a file; its matrices have weights of `kind`, as Q8_0, Q4_0, BF16, F16 or F32."""
    reader = gguf.GGUFReader(source)
    field = reader.fields["general.architecture"]
    writer = gguf.GGUFWriter(target, str(field.contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        first, *inner = field.types
        writer.add_key_value(name, field.contents(), first, inner[0] if inner else None)
    for tensor in reader.tensors:
        floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        _add(writer, tensor.name, floats, kind if floats.ndim > 1 else "F32")
    _write(writer)


def random_qwen(kind: str, target: Path, like: Path | None = None) -> None:
    """Write random weights in the shape of Qwen 2.5 0.5B, without a tokenizer's merges."""
    chance, size = numpy.random.default_rng(0), _QWEN
    writer = gguf.GGUFWriter(target, "qwen2")
    writer.add_context_length(8192)
    writer.add_embedding_length(size["width"])
    writer.add_block_count(size["layers"])
    writer.add_feed_forward_length(size["wide"])
    writer.add_head_count(size["heads"])
    writer.add_head_count_kv(size["kept"])
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    _add_tokens(writer, size["vocabulary"])

    def add(name: str, *shape: int) -> None:
        floats = chance.standard_normal(shape, numpy.float32) * numpy.float32(0.02)
        whole = len(shape) == 1
        _add(writer, name, floats + name.endswith("norm.weight") if whole else floats,
             "F32" if whole else kind)  # fmt: skip

    width, kept = size["width"], size["width"] // size["heads"] * size["kept"]
    add("token_embd.weight", size["vocabulary"], width)
    add("output_norm.weight", width)
    for number in range(size["layers"]):
        block = f"blk.{number}."
        for part, count in (("attn_q", width), ("attn_k", kept), ("attn_v", kept)):
            add(f"{block}{part}.weight", count, width)
            add(f"{block}{part}.bias", count)
        add(f"{block}attn_output.weight", width, width)
        for part in ("ffn_gate", "ffn_up"):
            add(f"{block}{part}.weight", size["wide"], width)
        add(f"{block}ffn_down.weight", width, size["wide"])
        for part in ("attn_norm", "ffn_norm"):
            add(f"{block}{part}.weight", width)
    _write(writer)


def _add_tokens(writer: gguf.GGUFWriter, count: int) -> None:
    """Tokens of single characters, of the only merge, and of numbers."""
    characters = [*(chr(code) for code in range(33, 127)), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*characters, *(f"<{n}>" for n in range(len(characters), count))])
    writer.add_token_types([1] * count)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(count - 1)
    writer.add_bos_token_id(count - 1)
    writer.add_add_bos_token(False)


def _add(writer: gguf.GGUFWriter, name: str, floats: numpy.ndarray, kind: str) -> None:
    own = gguf.GGMLQuantizationType[kind]
    floats = floats.astype(numpy.float32)
    writer.add_tensor(name, gguf.quants.quantize(floats, own), raw_dtype=own)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    given, kind, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if given == "qwen":
        random_qwen(kind, target)
    else:
        copy_as(Path(given), kind, target)
