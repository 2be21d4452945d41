"""Files of weights: safetensors and GGUF, memory-mapped; nothing in them is executed.

A tensor is read when the decoder needs it. Every tensor of a file must be used: a weight that
the decoder does not know would change its results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.base.missing_package import missing_module
from anydim.base.panics import failures
from anydim.base.read_files import FileState, open_regular
from anydim.base.text import quote_list
from anydim.serving.language_models.config_fields import Config, read_object
from anydim.serving.language_models.decoder_spec import EXPERT_PARTS, DecoderSpec
from anydim.serving.language_models.gguf_file import GgufTensor, read_gguf
from anydim.serving.language_models.matrices import (
    FORMATS,
    Blocks,
    Matrix,
    joined_rows,
    quantize,
    unpack_blocks,
    with_experts,
)
from anydim.serving.language_models.packed_weights import Packing, unpacking_readers
from anydim.serving.language_models.tensor_names import FileNames

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_UNUSED = re.compile(
    r"rotary_emb\.inv_freq$|attn\.(masked_)?bias$|attention\.(masked_)?bias$|^rope_"
)
"""Tensors of files that follow from others: tables of angles, causal masks."""
_SMALL = 32  # elements of a block
PRODUCTS = frozenset(
    {"q", "k", "v", "o", "gate", "up", "down", "head", "embedding", "shared_gate", "shared_up",
     "shared_down"} | EXPERT_PARTS
)  # fmt: skip
_SCALE = "shared_scale"


class TensorFile:
    """Tensors by name, read on demand from `paths`; `release` frees the pages of what was read."""

    def __init__(
        self, path: Path, readers: Mapping[str, Callable[[], Matrix]], paths: Sequence[Path],
        release: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.path, self._readers, self.release = path, readers, release
        self._states = [FileState.of(each) for each in paths]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._readers)

    def read(self, name: str) -> Matrix:
        """A tensor. Raises ModelError if it cannot be read, was written, or holds no floats."""
        self._check_states()
        try:
            found = self._readers[name]()
        except ModelError:
            raise
        except failures() as error:  # of the library, for a file that is damaged
            raise ModelError(f"tensor '{name}' of '{self.path}' cannot be read: {error}") from None
        if not isinstance(found, Blocks) and found.dtype.name not in _FLOATS:
            raise ModelError(f"tensor '{name}' of '{self.path}' is {found.dtype}, expected floats")
        return found

    def _check_states(self) -> None:
        """A file that was removed or replaced is still mapped; what was cut off is not."""
        for state in self._states:
            with suppress(OSError):
                now = FileState.of(state.path)
                if state.inode == now.inode and not state.is_same_file(now):
                    raise ModelError(f"'{state.path}' was written while it was read",
                                     "open the model again")  # fmt: skip


def open_safetensors(folder: Path, packing: Packing | None = None) -> TensorFile:
    """The tensors of all *.safetensors files of a folder, unpacked where they are packed. Raises
    ModelError if there are none."""
    library = _library("safetensors")
    readers: dict[str, Callable[[], Matrix]] = {}
    paths = weight_paths(folder)
    for path in paths:
        try:
            open_regular(str(path)).close()
            file = library.safe_open(path, framework="numpy")
            names = list(file.keys())
        except failures() as error:  # of the library
            raise ModelError(f"'{path}' is no safetensors file: {error}") from None
        for name in names:
            if name in readers:
                raise ModelError(f"'{path}' and another file have a tensor '{name}'",
                                 f"leave the files of one model in '{folder}'")  # fmt: skip
            readers[name] = lambda file=file, name=name: file.get_tensor(name)  # type: ignore[misc]
    own = readers if packing is None else unpacking_readers(readers, packing)
    return TensorFile(folder, own, paths)


def weight_paths(folder: Path) -> list[Path]:
    """The files of weights of a folder, those that transformers reads: model.safetensors, or those
    of the index, or all. Raises ModelError if there are none."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.exists() or whole.is_symlink():
        return [whole]
    if index.is_file():
        listed = Config(read_object(index), str(index)).part("weight_map").fields.values()
        names = {name for name in listed if isinstance(name, str)}
        if any(Path(name).name != name for name in names):
            raise ModelError(f"'{index}' names files of other folders")
        return [folder / name for name in sorted(names)]
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(
            f"'{folder}' has no *.safetensors file", "weights of other kinds are not read"
        )
    return paths


def open_gguf(path: Path) -> tuple[Mapping[str, Any], TensorFile]:
    """The metadata and the tensors of a GGUF file. Raises ModelError if it is none."""
    found = read_gguf(path)
    readers: dict[str, Callable[[], Matrix]] = {
        name: lambda tensor=tensor, name=name: _gguf_tensor(tensor, name)  # type: ignore[misc]
        for name, tensor in found.tensors.items()
    }
    return found.fields, TensorFile(path, readers, [path], found.release)


_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def _gguf_tensor(tensor: GgufTensor, name: str) -> Matrix:
    if tensor.format in FORMATS and len(tensor.shape) in (2, 3):
        blocks = unpack_blocks(tensor.format, tensor.data.reshape(-1, tensor.data.shape[-1]))
        return blocks if len(tensor.shape) == 2 else with_experts(blocks, tensor.shape[0])
    if tensor.format == "BF16":
        import ml_dtypes

        return tensor.data.view(ml_dtypes.bfloat16)
    if tensor.format in _PLAIN:
        return tensor.data.view(_PLAIN[tensor.format])
    hint = f"known are F32, F16, BF16, {', '.join(FORMATS)}"
    raise ModelError(f"tensor '{name}' has the format {tensor.format}", hint)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise missing_module("a language model's file", error) from None


class DecoderWeights:
    """The weights of a decoder by its own names, with checked shapes.

    Args:
        file: The file.
        names: The names in the file.
        spec: The decoder.
        bits: Products of floats are quantised to codes of 8 or 4 bits; 0: they stay floats.

    Raises:
        ModelError: A weight is missing, has another shape, or the file has more than the decoder.
    """

    def __init__(self, file: TensorFile, names: FileNames, spec: DecoderSpec, bits: int) -> None:
        self._file, self._names, self._spec, self._bits = file, names, spec, bits
        self._whole: tuple[str, Matrix | None] = "", None  # read last; of some, parts are weights
        self._read: tuple[str, Matrix | None] = "", None
        self._check_names()

    def __call__(self, weight: str) -> Matrix | None:
        """A weight; None if the decoder has none of this name. It is read again unless it was the
        last one; threads may call at the same time."""
        name, found = self._read
        if name != weight:
            found = self._load(weight)
            self._read = weight, found
        return found

    def release(self) -> None:
        """Forget what was read."""
        self._whole = self._read = "", None
        self._file.release()

    def _load(self, weight: str) -> Matrix | None:
        stem, held = self._find(weight)
        if held is None or not self._has(weight, stem):
            return None
        matrix = self._names.part(self._whole_matrix(held), stem, self._spec)
        if stem == _SCALE and len(matrix.shape) == 1:  # a vector in GGUF files
            matrix = numpy.asarray(matrix)[None]
        self._check_shape(weight, stem, matrix)
        if weight.endswith(".weight"):
            if self._bits and stem in PRODUCTS and self._may_quantize(matrix):
                assert isinstance(matrix, numpy.ndarray)
                rows = quantize(matrix.reshape(-1, matrix.shape[-1]), self._bits)
                return with_experts(rows, len(matrix)) if matrix.ndim == 3 else rows
        return matrix

    def _has(self, weight: str, stem: str) -> bool:
        """Whether the decoder has a weight."""
        if _is_whole(weight):
            return True
        number = weight.split(".")[1]
        parts = self._spec.parts
        return stem in (self._spec.parts_of(int(number)) if number.isdecimal() else parts)

    def _may_quantize(self, matrix: Matrix) -> bool:
        return not isinstance(matrix, Blocks) and matrix.shape[-1] % _SMALL == 0

    def _whole_matrix(self, held: str) -> Matrix:
        name, found = self._whole
        if found is None or name != held:
            self.release()
            found = self._file.read(held) if "{}" not in held else self._experts(held)
            self._whole = held, found
        return found

    def _experts(self, held: str) -> Matrix:
        """The matrices of all experts [experts, n, k]."""
        matrices = [self._file.read(name) for name in self._files_of(held)]
        if len({tuple(each.shape) for each in matrices}) != 1 or len(matrices[0].shape) != 2:
            raise ModelError(f"the experts '{held}' of '{self._file.path}' differ in shape")
        try:
            return with_experts(joined_rows(matrices), len(matrices))
        except ValueError as error:
            raise ModelError(f"'{held}' of '{self._file.path}': {error}") from None

    def _files_of(self, held: str) -> list[str]:
        """The tensors of a name: one, or one for each expert."""
        count = 1 if self._spec.experts is None else self._spec.experts.count
        return [held.replace("{}", str(number)) for number in range(count if "{}" in held else 1)]

    def _find(self, weight: str) -> tuple[str, str | None]:
        stem, candidates = self._names.names_of(weight)
        return stem, next(
            (name for name in candidates if name.replace("{}", "0") in self._file.names), None
        )

    def _check_shape(self, weight: str, stem: str, matrix: Matrix) -> None:
        expected = self._spec.expected_shape(stem)
        expected = expected if weight.endswith(".weight") else expected[:1]
        given = tuple(matrix.shape)
        if len(given) != len(expected) or any(
            size not in (None, own) for size, own in zip(expected, given)
        ):
            sizes = ", ".join("any" if size is None else str(size) for size in expected)
            raise ModelError(
                f"weight '{self._find(weight)[1]}' of '{self._file.path}' is {list(given)}, "
                f"expected [{sizes}]",
                "the file is not of the model that its configuration describes",
            )

    def _check_names(self) -> None:
        """All that is needed is there, and all that is there is used."""
        used, missing = set(), []
        for name in self._spec.weight_names():
            held = self._find(f"{name}.weight")[1]
            if held is None:
                missing.append(self._names.names_of(f"{name}.weight")[1][:1])
            elif not self._file.names.issuperset(self._files_of(held)):
                missing.append((held,))
            else:
                used.update(self._files_of(held))
                used.add(self._find(f"{name}.bias")[1] or held)
        if missing:
            first = ", ".join(f"'{name}'" for (name,) in missing[:3])
            raise ModelError(f"'{self._file.path}' has no {first} and {len(missing) - 1} more"
                             if len(missing) > 3 else f"'{self._file.path}' has no {first}",
                             "the file is not whole, or not of this architecture")  # fmt: skip
        used.update(filter(None, (self._find(f"head.{kind}")[1] for kind in ("weight", "bias"))))
        rest = sorted(name for name in self._file.names - used if not _UNUSED.search(name))
        if rest:
            raise ModelError(
                f"'{self._file.path}' has tensors that {self._spec.name} does not use: "
                f"{quote_list(rest[:3])}" + (f" and {len(rest) - 3} more" if len(rest) > 3 else ""),
                "compile the model from ONNX or torch, with ad.cached",
            )


def _is_whole(weight: str) -> bool:
    """Whether a weight is one of the whole model, not of a layer."""
    return not weight.startswith("layers.") and not weight.startswith("places.")
