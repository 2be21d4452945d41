"""Promise: GGUF files are read as their library reads them, and damaged ones are refused."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from anydim.base.errors import ModelError
from anydim.serving.language_models.decoder_graph import build_decoder
from anydim.serving.language_models.gguf_file import FORMATS as NUMBERED
from anydim.serving.language_models.gguf_file import read_gguf
from anydim.serving.language_models.matrices import FORMATS, quantize, unpack_blocks
from anydim.serving.language_models.opening import open_files
from tests.unit.serving.language_models.tiny_models import write_gguf


@pytest.mark.parametrize("kind", FORMATS)
def test_formats_have_the_values_of_the_library(kind: str) -> None:
    number = GGMLQuantizationType[kind]
    _, size = GGML_QUANT_SIZES[number]
    random = numpy.random.default_rng(0)
    data = random.integers(0, 256, (7, 3 * size), numpy.uint8)
    with numpy.errstate(all="ignore"):
        expected = quants.dequantize(data, number)
        found = unpack_blocks(kind, data).floats()
        finite = numpy.isfinite(expected) & (numpy.abs(expected) < 1e30)
        # a minimum and a centred code are added in another order: one rounding of each
        tolerance = 4e-7 * numpy.abs(expected[finite]).max()
    assert finite.sum() > finite.size // 2
    assert numpy.abs(found[finite] - expected[finite]).max() <= tolerance


def test_table_of_formats_is_that_of_the_library() -> None:
    for number, (name, block, size) in NUMBERED.items():
        kind = GGMLQuantizationType[name]
        assert (kind.value, GGML_QUANT_SIZES[kind]) == (number, (block, size))


def test_reader_agrees_with_the_library(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", "Q8_0")
    found, expected = read_gguf(path), gguf.GGUFReader(path)
    inner = {name: field.contents() for name, field in expected.fields.items()}
    own = {name: value for name, value in inner.items() if not name.startswith("GGUF.")}
    assert found.fields.keys() == own.keys()
    for name, value in own.items():
        assert numpy.array_equal(found.fields[name], value), name
    for tensor in expected.tensors:
        held = found.tensors[tensor.name]
        assert held.format == tensor.tensor_type.name
        assert held.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert held.data.tobytes() == tensor.data.tobytes()


@pytest.mark.parametrize("bits", (8, 4))
def test_quantised_weights_are_near(bits: int) -> None:
    random = numpy.random.default_rng(1)
    whole = random.standard_normal((5, 96)).astype(numpy.float32)
    whole[2] = 0
    found = quantize(whole, bits).floats()
    largest = numpy.abs(whole.reshape(5, 3, 32)).max(axis=2).repeat(32, axis=1)
    # half a step of codes, and the rounding of scales to 11 bits; -8 has no counterpart of 4 bits
    step = largest / (127 if bits == 8 else 8)
    assert (numpy.abs(found - whole) <= step * (0.51 + (bits == 4) * 0.51) + largest * 1e-3).all()


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for end in (0, 3, 4, 8, 20, 24, 60, 300, len(data) // 2, len(data) - 40_000):
        path.write_bytes(data[:end])
        with pytest.raises(ModelError):
            read_gguf(path)


def test_every_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    data = bytearray(write_gguf(tmp_path / "tiny.gguf").read_bytes())
    path, random = tmp_path / "changed.gguf", numpy.random.default_rng(2)
    for at in random.integers(0, 6000, 150):
        changed = bytearray(data)
        changed[at] ^= int(random.integers(1, 256))
        path.write_bytes(changed)
        with suppress(ModelError):
            read_gguf(path)


@pytest.mark.parametrize("count", (1 << 20, 1 << 40, (1 << 64) - 1))
def test_counts_beyond_the_file_are_refused(tmp_path: Path, count: int) -> None:
    path = tmp_path / "many.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, count, 0) + bytes(64))
    with pytest.raises(ModelError, match="do not fit"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, count) + bytes(64))
    with pytest.raises(ModelError, match="do not fit"):
        read_gguf(path)


def test_weights_are_read_when_they_are_needed(tmp_path: Path) -> None:
    """A graph holds none of them; a file that is replaced is still read, one that is cut is not."""
    path = write_gguf(tmp_path / "tiny.gguf")
    opened = open_files(path, None, None, None, "float32")
    assert opened.weights is not None
    graph = build_decoder(opened.spec, opened.weights, "decoder")
    large = [each for each in graph.constants.values() if each.nbytes > 4096]
    before = [each.elements.tobytes() for each in large]
    assert len(large) >= 2 * len(opened.spec.layers) + 1
    assert all(each._held is None for each in large)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes(len(whole)))
    assert [each.elements.tobytes() for each in large] == before
    path.write_bytes(whole)
    other = open_files(path, None, None, None, "float32").weights
    assert other is not None
    with open(path, "r+b") as file:
        file.truncate(len(whole) // 2)
    with pytest.raises(ModelError, match="was written while it was read"):
        other("embedding.weight")
