"""Weights of GPTQ and AWQ in safetensors, with the bits that they have in their files.

    NAME.qweight, NAME.qzeros   int32: 32 / bits codes or zero points each
    NAME.scales                 [groups, out]
    NAME.g_idx                  [in], GPTQ: the group of each input

    weight[in, out] = (code[in, out] - zero[group, out]) * scale[group, out]

GPTQ (Frantar et al. 2022, arXiv:2210.17323) packs codes along inputs, the lowest bits first, and
stores zero points less one in its first format; AWQ (Lin et al. 2023, arXiv:2306.00978) packs along
outputs, in an order of its own. As `Blocks`, codes are centred, and zero points become minima.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.serving.language_models.matrices import Blocks, Matrix

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where the fields of a word are that follow each other
PARTS = ("qweight", "qzeros", "scales", "g_idx")
Readers = dict[str, Callable[[], Matrix]]


@dataclass(frozen=True)
class Packing:
    """How weights are packed: by 'gptq' or 'awq', to codes of `bits`.

    `group` is the number of inputs with one scale, None: all; stored zero points are less by `less`
    than they are.
    """

    method: str
    bits: int
    group: int | None
    less: int = 0


def packing_of(given: Any) -> Packing:
    """The packing by `quantization_config`. Raises ModelError for one that is not read."""
    found = given if isinstance(given, Mapping) else {}
    method, bits = str(found.get("quant_method", "")).lower(), found.get("bits")
    group = found.get("group_size", -1)
    is_known = (method == "gptq" and bits in (4, 8)) or (
        method == "awq" and bits == 4 and str(found.get("version", "gemm")).lower() == "gemm"
    )
    if not is_known or type(bits) is not int or type(group) is not int or group == 0 or group < -1:
        raise ModelError(
            f"weights quantised by '{method[:40]}' with {str(bits)[:40]} bits and group_size "
            f"{str(group)[:40]} are not read",
            "known are gptq of 4 and 8 bits, and awq of 4 bits (version gemm); or give the folder "
            "of the float weights with quantize=, or a GGUF file",
        )
    is_first = method == "gptq" and found.get("checkpoint_format", "gptq") != "gptq_v2"
    return Packing(method, bits, None if group == -1 else group, int(is_first))


def unpacking_readers(readers: Readers, packing: Packing) -> Readers:
    """Readers with one weight in place of the parts of each packed one."""
    stems = {name.rpartition(".")[0] for name in readers if name.endswith(".qweight")}
    packed = {f"{stem}.{part}" for stem in stems for part in PARTS}
    made = {name: read for name, read in readers.items() if name not in packed}
    for stem in stems:
        own = {part: readers[f"{stem}.{part}"] for part in PARTS if f"{stem}.{part}" in readers}
        made[f"{stem}.weight"] = lambda own=own, stem=stem: _unpack(packing, own, stem)  # type: ignore[misc]
    return made


def _unpack(packing: Packing, readers: Mapping[str, Callable[[], Any]], stem: str) -> Blocks:
    missing = [part for part in PARTS[:3] if part not in readers]
    if missing:
        raise ModelError(f"weight '{stem}' has no '{missing[0]}'", "the file is not whole")
    parts = {part: numpy.asarray(read()) for part, read in readers.items()}
    words, zeros, scales = (parts[part] for part in PARTS[:3])
    if any(each.ndim != 2 or each.dtype != numpy.int32 for each in (words, zeros)) or (
        scales.ndim != 2 or scales.dtype.kind not in "fV"
    ):
        raise ModelError(f"the parts of weight '{stem}' are {words.dtype}{list(words.shape)}, "
                         f"{zeros.dtype}{list(zeros.shape)}, {scales.dtype}{list(scales.shape)}",
                         "expected int32, int32 and floats, with two axes each")  # fmt: skip
    is_gptq = packing.method == "gptq"
    codes = _fields(words.T, packing).T if is_gptq else _fields(words, packing)
    zeros = _fields(zeros, packing).astype(numpy.int16) + packing.less
    count, width = codes.shape
    group = packing.group or count
    shape = (-(-count // group), width)
    if count % group or zeros.shape != shape or scales.shape != shape:
        raise ModelError(f"weight '{stem}' has codes {[count, width]}, zero points "
                         f"{list(zeros.shape)} and scales {list(scales.shape)}",
                         f"expected groups of {group} inputs: {list(shape)}")  # fmt: skip
    order = _order(parts.get("g_idx"), count, group, stem)
    return _blocks(codes if order is None else codes[order], zeros, scales, packing, group, order)


def _blocks(
    codes: numpy.ndarray, zeros: numpy.ndarray, scales: numpy.ndarray, packing: Packing, group: int,
    order: numpy.ndarray | None,
) -> Blocks:  # fmt: skip
    middle = 1 << packing.bits - 1
    dtype = ml_dtypes.int4 if packing.bits == 4 else numpy.int8
    centred = codes.astype(numpy.int16) - middle
    scales = numpy.ascontiguousarray(scales.T.astype(numpy.float32))
    distances = middle - zeros.T
    minima = (distances * scales).astype(numpy.float32) if distances.any() else None
    kept = numpy.ascontiguousarray(centred.T.astype(numpy.int8)).astype(dtype)
    return Blocks(kept, scales, minima, group, order)


def _fields(words: numpy.ndarray, packing: Packing) -> numpy.ndarray:
    """The fields of words along the last axis: uint8 [n, words * 32 / bits]."""
    bits, count = packing.bits, 32 // packing.bits
    order = _AWQ_ORDER if packing.method == "awq" else range(count)
    unsigned = numpy.ascontiguousarray(words).view(numpy.uint32)
    made = numpy.empty((*words.shape, count), numpy.uint8)
    for place, field in enumerate(order):
        made[..., place] = unsigned >> numpy.uint32(bits * field) & numpy.uint32((1 << bits) - 1)
    return made.reshape(words.shape[0], -1)


def _order(groups: numpy.ndarray | None, count: int, group: int, stem: str) -> numpy.ndarray | None:
    """The inputs in the order of their groups; None where they are in it."""
    if groups is None:
        return None
    expected = numpy.arange(count) // group
    if groups.shape != (count,) or groups.dtype.kind not in "iu":
        raise ModelError(
            f"'{stem}.g_idx' is {groups.dtype}{list(groups.shape)}", f"expected {count}"
        )
    if numpy.array_equal(groups, expected):
        return None
    order = numpy.argsort(groups, kind="stable")
    if not numpy.array_equal(groups[order], expected):
        raise ModelError(f"'{stem}.g_idx' has groups of other sizes than {group}")
    return order
