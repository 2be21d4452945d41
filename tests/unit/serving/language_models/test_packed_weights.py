"""Promise: weights of GPTQ and AWQ have the values that their formats say, and keep their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors.numpy import load_file, save_file

import anydim as ad
from anydim.serving.language_models.packed_weights import packing_of, unpacking_readers
from tests.unit.serving.language_models.tiny_models import tokenizer, weights, write_folder

AWQ = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ: field i of a word is output 8 * word + AWQ[i]
CASES: dict[str, dict[str, Any]] = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 16},
    "gptq, version 2": {"quant_method": "gptq", "bits": 4, "group_size": 32,
                        "checkpoint_format": "gptq_v2"},
    "gptq, one group": {"quant_method": "gptq", "bits": 4, "group_size": -1},
    "gptq, 8 bits": {"quant_method": "gptq", "bits": 8, "group_size": 32},
    "gptq, in another order": {"quant_method": "gptq", "bits": 4, "group_size": 16,
                               "desc_act": True},
    "gptq, symmetric": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True,
            "version": "gemm"},
}  # fmt: skip


def words_of(fields: numpy.ndarray, bits: int, order: Any) -> numpy.ndarray:
    """Fields [n, m] packed along the last axis, by the text of the formats."""
    count = 32 // bits
    made = numpy.zeros((fields.shape[0], fields.shape[1] // count), numpy.uint64)
    for word in range(made.shape[1]):
        for place in range(count):
            field = fields[:, word * count + order[place]].astype(numpy.uint64)
            made[:, word] |= field << numpy.uint64(bits * place)
    return made.astype(numpy.uint32).view(numpy.int32)


def packed(name: str, inputs: int, outputs: int, config: dict[str, Any], seed: int) -> Any:
    """The parts of a random weight, and the weight [out, in], float64."""
    chance, bits = numpy.random.default_rng(seed), config["bits"]
    group = inputs if config["group_size"] == -1 else config["group_size"]
    groups = numpy.arange(inputs) // group
    if config.get("desc_act"):
        groups = chance.permutation(groups)
    codes = chance.integers(0, 1 << bits, (inputs, outputs))
    zeros = chance.integers(1, 1 << bits, (inputs // group, outputs))
    if config.get("sym"):
        zeros[:] = 1 << bits - 1
    scale = inputs**-0.5 * 3 / (1 << bits)
    scales = chance.uniform(0.5, 1.5, zeros.shape).astype(numpy.float32) * scale
    scales = scales.astype(numpy.float16)
    order = AWQ if config["quant_method"] == "awq" else range(32 // bits)
    stored = (
        zeros if config["quant_method"] == "awq" or "checkpoint_format" in config else zeros - 1
    )
    parts = {"qzeros": words_of(stored, bits, order), "scales": scales}
    if config["quant_method"] == "awq":
        parts["qweight"] = words_of(codes, bits, order)
    else:
        parts["qweight"] = words_of(codes.T, bits, order).T
        parts["g_idx"] = groups.astype(numpy.int32)
    value = (codes - zeros[groups]) * scales.astype(numpy.float64)[groups]
    named = {f"{name}.{part}": numpy.ascontiguousarray(array) for part, array in parts.items()}
    return named, numpy.ascontiguousarray(value.T)


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_formats(case: str) -> None:
    config = CASES[case]
    for inputs, outputs, seed in ((32, 8, 0), (64, 24, 1), (96, 64, 2)):
        parts, expected = packed("x", inputs, outputs, config, seed)
        readers: Any = {name: lambda array=array: array for name, array in parts.items()}
        made = unpacking_readers({**readers, "y.weight": list}, packing_of(config))
        assert made.keys() == {"x.weight", "y.weight"}
        found: Any = made["x.weight"]()
        assert found.codes.dtype.name == ("int4" if config["bits"] == 4 else "int8")
        assert (found.minima is None) == bool(config.get("sym"))
        assert numpy.abs(found.floats() - expected).max() <= 1e-6 * numpy.abs(expected).max()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Of each case: a packed folder, and one of its float weights."""
    made, base = {}, tmp_path_factory.mktemp("lm")
    for case, config in CASES.items():
        tensors = weights(tokenizer().get_vocab_size())
        floats = dict(tensors)
        for number, name in enumerate(sorted(tensors)):
            if "proj" in name:
                outputs, inputs = tensors.pop(name).shape
                parts, value = packed(name.removesuffix(".weight"), inputs, outputs, config, number)
                tensors |= parts
                floats[name] = value.astype(numpy.float32)
        place = base / case.replace(" ", "_").replace(",", "")
        own = write_folder(place, tensors, quantization_config=config)
        made[case] = own, write_folder(base / f"{place.name}_floats", floats)
    return made


@pytest.mark.sampled(only=["gptq, 8 bits", "gptq, in another order", "awq"])  # values: above
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_dequantised_weights(
    folders: dict[str, tuple[Path, Path]], case: str
) -> None:
    tokens = numpy.random.default_rng(0).integers(4, 300, 50)
    found, bytes = [], []
    for path in folders[case]:
        with ad.language_model(path, threads=1) as lm:
            row = lm.model.join()
            found.append(numpy.array(lm.model.step({row: tokens})["logits"][0][-1]))
            bytes.append(lm.memory([1])["weights"])
            one = lm.model.join()
            for token in tokens:
                last = lm.model.step({one: [token]})["logits"][0][-1]
            assert numpy.array_equal(last, found[-1])
            answer = lm.generate("0 1 2", 10)
            answer.read()
            found.append(numpy.array(answer.tokens))
    assert numpy.abs(found[0] - found[2]).max() <= 1e-4 * numpy.abs(found[2]).max()
    assert numpy.array_equal(found[1], found[3])
    assert bytes[0] < bytes[1] * 0.75  # embeddings are floats


@pytest.mark.parametrize("wrong", (
    {}, 3, "gptq", {"quant_method": "gptq"}, {"quant_method": "gptq", "bits": 3},
    {"quant_method": "gptq", "bits": "4"}, {"quant_method": "gptq", "bits": True},
    {"quant_method": "gptq", "bits": 4, "group_size": 0},
    {"quant_method": "gptq", "bits": 4, "group_size": -2},
    {"quant_method": "gptq", "bits": 4, "group_size": 1.5},
    {"quant_method": "awq", "bits": 8}, {"quant_method": "awq", "bits": 4, "version": "gemv"},
    {"quant_method": "bitsandbytes", "load_in_4bit": True}, {"quant_method": "fp8"},
    {"quant_method": "x" * 9999, "bits": 4},
))  # fmt: skip
def test_other_packings_are_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ad.ModelError, match="are not read") as caught:
        ad.language_model(write_folder(tmp_path / "tiny", quantization_config=wrong))
    assert len(str(caught.value)) < 500


def _change(part: str, change: Any) -> Any:
    def made(tensors: dict[str, Any]) -> None:
        name = f"model.layers.0.self_attn.q_proj.{part}"
        value = change(tensors.pop(name))
        if value is not None:
            tensors[name] = numpy.ascontiguousarray(value)

    return made


DAMAGE: dict[str, tuple[Any, str]] = {
    "no zeros": (_change("qzeros", lambda _: None), "has no 'qzeros'"),
    "no scales": (_change("scales", lambda _: None), "has no 'scales'"),
    "floats": (_change("qweight", lambda x: x.astype(numpy.float32)), "expected int32"),
    "one axis": (_change("qweight", lambda x: x.ravel()), "expected int32"),
    "fewer scales": (_change("scales", lambda x: x[1:]), "expected groups"),
    "fewer zeros": (_change("qzeros", lambda x: x[:, 1:]), "expected groups"),
    "fewer rows": (_change("qweight", lambda x: x[1:]), "expected groups"),
    "no rows": (_change("qweight", lambda x: x[:0]), "expected"),
    "fewer columns": (_change("qweight", lambda x: x[:, 8:]), "expected groups"),
    "short g_idx": (_change("g_idx", lambda x: x[1:]), "g_idx"),
    "float g_idx": (_change("g_idx", lambda x: x.astype(numpy.float32)), "g_idx"),
    "wrong g_idx": (_change("g_idx", lambda x: x * 0), "other sizes"),
    "negative g_idx": (_change("g_idx", lambda x: x - 1), "other sizes"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_weights_say_what_is_wrong(
    folders: dict[str, tuple[Path, Path]], tmp_path: Path, damage: str
) -> None:
    change, said = DAMAGE[damage]
    tensors = load_file(folders["gptq"][0] / "model.safetensors")
    change(tensors)
    path = write_folder(tmp_path / "tiny", tensors, quantization_config=CASES["gptq"])
    with pytest.raises(ad.ModelError, match=said):
        ad.language_model(path)
    save_file({}, path / "model.safetensors")
    with pytest.raises(ad.ModelError):
        ad.language_model(path)
