"""Promise: an input that does not fit is refused before anything runs, with a text that says
where, what was expected, what came and what to do; the next call works."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.base.dtypes import int64
from anydim.base.errors import DimError, InputError, OutOfMemoryError
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Guard, Size, as_size, parse
from tests.unit.runtime.program.tiny import adder, model_of, program, spec

BATCH, SEQ = Size.symbol("batch"), Size.symbol("seq")
BOX = Box.of(Dim("batch", 0, 64), Dim("seq", 2, 512), constraints=(parse("600 - batch - seq"),))


def array(*shape: int) -> numpy.ndarray:
    return numpy.ones(shape, numpy.float32)


@pytest.fixture(scope="module")
def shared() -> Model:
    count = BATCH * SEQ
    inputs = [spec("ids", "batch", "seq"), spec("mask", "batch", "seq")]
    inputs += [spec("pos", parse("seq + 1")), spec("table", 3, 4)]
    guards = (Guard(parse("seq % 7"), "!=", as_size(6), "lengths 6, 13, 20, ... are not taken"),)
    steps = [Site("add", ("ids", "mask", "y"), (count,), count)]
    made = program(BOX, inputs, [spec("y", "batch", "seq")], steps, guards=guards, name="bert.onnx")
    return model_of(made)


@pytest.fixture
def model(shared: Model) -> Iterator[Model]:
    yield shared
    result = shared(**good())["y"]
    assert (result == 2).all() and result.shape == (2, 3)


def good() -> dict[str, numpy.ndarray]:
    return {"ids": array(2, 3), "mask": array(2, 3), "pos": array(4), "table": array(3, 4)}


CASES = {
    "above a bound": (
        {"ids": array(2, 600)}, DimError,
        "input 'ids' of bert.onnx: dim 'seq' is 600, above its bound 512\n"
        "  expected shape [batch, seq], got [2, 600]; declared seq=2..512; "
        "raise the bound, or split the input",
    ),
    "below a bound": (
        {"ids": array(2, 1)}, DimError,
        "input 'ids' of bert.onnx: dim 'seq' is 1, below its bound 2\n"
        "  expected shape [batch, seq], got [2, 1]; declared seq=2..512; lower the bound",
    ),
    "two inputs disagree on a dim": (
        {"mask": array(2, 5)}, DimError,
        "input 'mask' of bert.onnx: axis 1 is 5, but dim 'seq' is 3 in axis 1 of input 'ids'\n"
        "  expected shape [batch, seq], got [2, 5]; inputs must agree on every dim",
    ),
    "an axis that follows from a dim": (
        {"pos": array(3)}, DimError,
        "input 'pos' of bert.onnx: axis 0 is 3, but seq + 1 is 4 at seq = 3\n"
        "  expected shape [seq + 1], got [3]; inputs must agree on every dim",
    ),
    "a fixed axis": (
        {"table": array(3, 5)}, DimError,
        "input 'table' of bert.onnx: axis 1 is 5, expected 4\n"
        "  expected shape [3, 4], got [3, 5]",
    ),
    "the largest sizes fit": (
        {"ids": array(64, 512), "mask": array(64, 512), "pos": array(513)}, None, "",
    ),
    "a guard": (
        {"ids": array(2, 6), "mask": array(2, 6), "pos": array(7)}, DimError,
        "inputs of bert.onnx: sizes do not fit at seq = 6; 'seq' must be another size, "
        "such as 5 or 7\n"
        "  lengths 6, 13, 20, ... are not taken: seq % 7 != 6 does not hold",
    ),
    "another dtype": (
        {"ids": numpy.ones((2, 3))}, InputError,
        "input 'ids' of bert.onnx: expected dtype float32, got float64\n"
        "  convert it: array.astype('float32')",
    ),
    "integers": (
        {"ids": numpy.ones((2, 3), numpy.int64)}, InputError,
        "input 'ids' of bert.onnx: expected dtype float32, got int64\n"
        "  convert it: array.astype('float32')",
    ),
    "text": (
        {"ids": "hello"}, InputError,
        "input 'ids' of bert.onnx: expected dtype float32, got text\n"
        "  give an array of ids: float32[batch, seq]",
    ),
    "records": (
        {"ids": numpy.zeros((2, 3), [("a", numpy.float32)])}, InputError,
        "input 'ids' of bert.onnx: expected dtype float32, got records\n"
        "  give an array of ids: float32[batch, seq]",
    ),
    "a mapping": (
        {"ids": {"ids": array(2, 3)}}, InputError,
        "input 'ids' of bert.onnx: expected an array, got a mapping\n"
        "  unpack the mapping: model(**inputs)",
    ),
    "nothing": (
        {"ids": None}, InputError,
        "input 'ids' of bert.onnx: expected dtype float32, got Python objects\n"
        "  give an array of ids: float32[batch, seq]",
    ),
    "too few axes": (
        {"ids": array(3)}, InputError,
        "input 'ids' of bert.onnx: expected 2 axes [batch, seq], got 1 axis [3]\n"
        "  add axes with array[None], drop them with array.squeeze(), or use array.reshape",
    ),
    "a number": (
        {"ids": numpy.float32(1)}, InputError,
        "input 'ids' of bert.onnx: expected 2 axes [batch, seq], got 0 axes []\n"
        "  add axes with array[None], drop them with array.squeeze(), or use array.reshape",
    ),
    "a masked array": (
        {"ids": numpy.ma.masked_array(array(2, 3))}, InputError,
        "input 'ids' of bert.onnx: expected a plain array, got a masked array\n"
        "  fill in the masked elements: array.filled(value)",
    ),
    "an unknown name": (
        {"masc": array(2, 3)}, InputError,
        "bert.onnx has no input 'masc'\n  did you mean 'mask'?",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "text"), CASES.values(), ids=CASES.keys())
def test_wrong_inputs(model: Model, change: dict, kind: type | None, text: str) -> None:
    if kind is None:
        assert model(**{**good(), **change})["y"].shape == (64, 512)
        return
    with pytest.raises(kind) as caught:
        model(**{**good(), **change})
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_a_missing_input(model: Model) -> None:
    given = good()
    del given["mask"], given["pos"]
    with pytest.raises(InputError) as caught:
        model(**given)
    assert str(caught.value) == (
        "bert.onnx: input 'mask', 'pos' is missing\n"
        "  inputs: ids: float32[batch, seq], mask: float32[batch, seq], pos: float32[seq + 1], "
        "table: float32[3, 4]"
    )


def test_one_name_instead_of_another(model: Model) -> None:
    given = good()
    given["ID"] = given.pop("ids")
    with pytest.raises(InputError, match="has no input 'ID'"):
        model(**given)


def test_positional_inputs(model: Model) -> None:
    arrays = list(good().values())
    assert model(*arrays)["y"].shape == (2, 3)
    assert model(*arrays[:2], pos=arrays[2], table=arrays[3])["y"].shape == (2, 3)
    with pytest.raises(InputError, match="got 5 positional inputs, expected at most 4"):
        model(*arrays, arrays[0])
    with pytest.raises(InputError, match="input 'ids' was given twice"):
        model(*arrays, ids=arrays[0])


def test_all_inputs_in_one_argument(model: Model) -> None:
    for given, what in (
        (good(), "unpack the mapping: model(**inputs)"),
        (list(good().values()), "unpack the list: model(*inputs)"),
    ):
        with pytest.raises(InputError, match="is missing") as caught:
            model(given)
        assert caught.value.hint == what


def test_nested_lists_of_the_wrong_shape(model: Model) -> None:
    with pytest.raises(InputError, match=r"input 'ids' of bert[.]onnx: list is not an array"):
        model(**{**good(), "ids": [[1.0], [1.0, 2.0]]})


def test_lists_take_the_type_of_the_input(model: Model) -> None:
    given = good()
    lists = {name: array.tolist() for name, array in given.items()}
    assert numpy.array_equal(model(**lists)["y"], model(**given)["y"])


def test_a_violated_constraint() -> None:
    box = Box.of(Dim("n", 0, 9), Dim("m", 0, 9), constraints=(parse("n - m"),))
    model = model_of(program(box, [spec("x", "n"), spec("z", "m")], [], []))
    with pytest.raises(DimError) as caught:
        model(x=array(3), z=array(4))
    text = f"the constraint {box.constraints[0]} >= 0 does not hold at m = 4, n = 3"
    assert str(caught.value).startswith(f"inputs of tiny: {text}\n")
    assert model(x=array(4), z=array(4)) == {}


def test_sizes_that_are_too_large_for_any_machine() -> None:
    n, m = Size.symbol("n"), Size.symbol("m")
    inputs = [spec("x", 0, "n"), spec("z", 0, "m")]
    model = model_of(program(Box.of(Dim("n"), Dim("m")), inputs, [spec("y", n * m)], []))
    with pytest.raises(
        OutOfMemoryError, match=r"not enough memory at n = \d+, m = 4 for \d+ bytes"
    ):
        model(x=array(0, 2**40), z=array(0, 4))
    with pytest.raises(DimError, match="does not fit 64 bits"):
        model(x=array(0, 2**40), z=array(0, 2**40))
    assert model(x=array(0, 3), z=array(0, 4))["y"].shape == (12,)


def test_integer_lists_are_taken_where_the_dtype_fits() -> None:
    model = model_of(program(Box.of(Dim("n")), [spec("x", "n", dtype=int64)], [], []))
    assert model(x=[1, 2, 3]) == {} and model(x=numpy.arange(3)) == {}
    with pytest.raises(InputError, match=r"list is not an array: 2[.]5 is no int64"):
        model(x=[1.0, 2.5])


PLANS = {
    "missing": ({"batch": 3}, "tiny: dim 'seq' has no size"),
    "unknown": ({"batch": 3, "seq": 4, "sec": 4}, "tiny has no dim 'sec'\n  did you mean 'seq'?"),
    "above": ({"batch": 65, "seq": 4}, "tiny: dim 'batch' is 65, above its bound 64"),
}


@pytest.mark.parametrize(("sizes", "text"), PLANS.values(), ids=PLANS.keys())
def test_plans_at_wrong_sizes(sizes: dict[str, int], text: str) -> None:
    model = model_of(adder(Box.of(Dim("batch", 0, 64), Dim("seq", 1, 512)), "batch", "seq"))
    with pytest.raises(DimError) as caught:
        model.plan(**sizes)
    assert str(caught.value).startswith(text)


def test_a_sequence_longer_than_the_positions_of_an_encoder() -> None:
    """What does not fit is said in words; the polynomial that is checked is left out."""
    g = ad.Builder("encoder")
    batch, seq = g.dim("batch"), g.dim("seq")
    x, table = g.input("x", ad.float32, (batch, seq, 4)), g.constant(numpy.ones((512, 4), "f4"))
    g.output("y", x + table[:seq])
    model = ad.compile(g)
    assert model(x=numpy.ones((1, 512, 4), "f4"))["y"].shape == (1, 512, 4)
    with pytest.raises(DimError) as caught:
        model(x=numpy.ones((1, 600, 4), "f4"))
    first, second = str(caught.value).splitlines()
    assert first == ("inputs of encoder: sizes do not fit at seq = 600; 'seq' must be at most 512")
    assert "seq of " in second and "min(seq, 512) of " in second and "**" not in second
