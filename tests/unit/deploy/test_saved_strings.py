"""Promise: a saved model with strings gives the results and the errors of the compiled one."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad
import anydim.ort as ort
from anydim.deploy.archive import Member, write
from anydim.deploy.container import Container
from anydim.deploy.records import parse_record, print_record
from anydim.deploy.string_records import SavedStrings, saved_value
from release.runtime_wheel import SOURCE
from tests.unit.compiler.frontends.test_strings import CLASSES, WORDS, classifier, model

STRING, FLOAT, INT64 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64
value = helper.make_tensor_value_info
LEARNED = {"domain": "ai.onnx.ml"}


def labels() -> Any:
    """Every kind of attribute: tensors of strings and numbers, floats, texts, integers."""
    encoded = [word.encode() for word in WORDS]
    nodes = [
        helper.make_node("LabelEncoder", ["words"], ["ids"], **LEARNED,
                         keys_tensor=helper.make_tensor("k", STRING, [4], encoded),
                         values_tensor=helper.make_tensor("v", INT64, [4], [3, 1, 2, 0]),
                         default_tensor=helper.make_tensor("d", INT64, [1], [9])),
        helper.make_node("LabelEncoder", ["words"], ["weight"], **LEARNED, keys_strings=WORDS,
                         values_floats=[0.1, float("inf"), -0.0, 2.5], default_float=1e-30),
        helper.make_node("Cast", ["ids"], ["x"], to=FLOAT),
        helper.make_node("Mul", ["x", "weight"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [value("words", STRING, ["n", "m"])], [value("y", FLOAT, ["n", "m"])])


def maps() -> Any:
    """Probabilities become a map for each row."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["z"], classlabels_strings=CLASSES, **LEARNED),
    ]
    out = helper.make_value_info("z", helper.make_sequence_type_proto(
        helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, None))
    ))  # fmt: skip
    return model(nodes, [value("x", FLOAT, ["n", 3])], [out])


def joined() -> Any:
    """Operators that onnx's evaluator runs, before native code."""
    nodes = [
        helper.make_node("StringConcat", ["a", "b"], ["words"]),
        helper.make_node("LabelEncoder", ["words"], ["ids"], keys_strings=["no!", "yes!"],
                         values_floats=[1.0, 2.0], default_float=-1.0, **LEARNED),
        helper.make_node("Exp", ["ids"], ["y"]),
    ]  # fmt: skip
    inputs = [value("a", STRING, ["n"]), value("b", STRING, ["n"])]
    return model(nodes, inputs, [value("y", FLOAT, ["n"])])


def words(n: int) -> np.ndarray:
    return np.random.default_rng(n).choice([*WORDS, "Yes", "über", ""], n).astype(object)


Inputs = Callable[[int], dict[str, Any]]
MODELS: dict[str, tuple[Callable[[], Any], Inputs]] = {
    "classifier": (lambda: classifier()[0], lambda n: {"flat": words(n)}),
    "labels": (labels, lambda n: {"words": words(3 * n).reshape(n, 3)}),
    "maps": (maps, lambda n: {"x": np.random.default_rng(n).random((n, 3), np.float32)}),
    "joined": (joined, lambda n: {"a": words(n), "b": np.full(n, "!", object)}),
}
SIZES = (1, 2, 7, 33, 0)


def plain(results: dict[str, Any]) -> dict[str, Any]:
    return {name: (found.dtype.str, found.tolist()) if isinstance(found, np.ndarray) else found
            for name, found in results.items()}  # fmt: skip


@pytest.fixture(params=MODELS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Inputs, Path]:
    build, draw = MODELS[request.param]
    compiled = ad.compile(build())
    path = tmp_path / "strings.anydim"
    compiled.save(path, ["native", "aarch64"])
    return compiled, draw, path


def test_results_are_those_of_the_compiled_model(kind: tuple[Any, Inputs, Path]) -> None:
    compiled, draw, path = kind
    loaded = ad.load(path)
    for n in SIZES:
        assert plain(loaded(**draw(n))) == plain(compiled(**draw(n)))
    sent = pickle.loads(pickle.dumps(loaded))
    assert plain(sent(**draw(5))) == plain(compiled(**draw(5)))
    assert loaded.name == compiled.name and repr(loaded).startswith(repr(compiled)[:-1])
    assert (loaded.inputs, loaded.outputs) == (compiled.inputs, compiled.outputs)
    assert [spec.name for spec in loaded.inputs] == loaded.input_names() == [*draw(1)]
    assert str(loaded.memory) == str(compiled.memory) and loaded.plan(
        **dict.fromkeys(loaded.dims.names, 3)
    )
    first = path.read_bytes()
    compiled.save(path, ["native", "aarch64"])
    assert path.read_bytes() == first


def test_sessions(kind: tuple[Any, Inputs, Path], tmp_path: Path) -> None:
    _, draw, path = kind
    build = next(b for b, d in MODELS.values() if d is draw)
    one, two = ort.InferenceSession(build().SerializeToString()), ort.InferenceSession(str(path))
    for ours, theirs in (
        (one.get_inputs(), two.get_inputs()),
        (one.get_outputs(), two.get_outputs()),
    ):
        assert [(a.name, a.type) for a in ours] == [(a.name, a.type) for a in theirs]
    assert [a.shape for a in one.get_inputs()] == [a.shape for a in two.get_inputs()]
    for n in SIZES[:3]:
        for ours, theirs in zip(one.run(None, draw(n)), two.run(None, draw(n))):
            assert np.asarray(ours).tolist() == np.asarray(theirs).tolist()


@pytest.mark.parametrize("inputs", [
    {}, {"flat": np.zeros(3)}, {"flat": [["no"], ["no", "yes"]]}, {"flat": ["no"], "more": 1}
])  # fmt: skip
def test_errors_are_the_same(inputs: dict[str, Any], tmp_path: Path) -> None:
    compiled = ad.compile(classifier()[0])
    compiled.save(tmp_path / "c.anydim")
    loaded = ad.load(tmp_path / "c.anydim")
    texts = []
    for each in (compiled, loaded):
        with pytest.raises(ad.InputError) as caught:
            each(**inputs)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    with pytest.raises(ad.OptionError, match="works on strings"):
        loaded.map([])


def test_what_inspect_shows(tmp_path: Path) -> None:
    ad.compile(classifier()[0]).save(tmp_path / "c.anydim")
    text = str(ad.inspect(tmp_path / "c.anydim", verify=True))
    assert "flat: tensor(string)[N]" in text and "name: tensor(string)[N]" in text


def test_a_model_of_strings_alone_has_no_code_to_save(tmp_path: Path) -> None:
    nodes = [helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")]
    made = ad.compile(model(nodes, [value("x", STRING, ["n"])], [value("y", STRING, ["n"])]))
    with pytest.raises(ad.OptionError) as caught:
        made.save(tmp_path / "none.anydim")
    assert caught.value.problem == f"{made.name} has no native part: all of it is on strings"


SCRIPT = """
import sys, numpy, anydim
class Refuse:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("onnx", "llvmlite", "google"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
try:
    model = anydim.load(sys.argv[1])
    print(model(flat=["no", "YES"])["name"].tolist(), "anydim.compiler.frontends" in sys.modules)
except anydim.MissingError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["classifier", "joined"])
def test_without_the_package_onnx(name: str, tmp_path: Path) -> None:
    compiled = ad.compile(MODELS[name][0]())
    compiled.save(tmp_path / "s.anydim")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "s.anydim")], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if name == "classifier":
        assert done.stdout.strip() == f"{compiled(flat=['no', 'YES'])['name'].tolist()} False"
    else:
        assert done.stdout == (
            "m, whose operators on strings numpy lacks, needs onnx, which is not installed\n"
            "  pip install onnx\n"
        )


# ---- records -------------------------------------------------------------------------------------


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the record of strings; all digests are right."""
    container = Container(str(path))
    members = []
    for name in container.parts:
        data = bytes(container.view(name))
        if name == "strings.json":
            whole = json.loads(data)
            change(whole["record"])
            data = json.dumps(whole).encode()
        members.append(Member(name, data, 1 << 16 if name.endswith("/code") else 64))
    write(str(path), container.about, members)


def _keys(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["early"]["nodes"][1]["attributes"]["keys_strings"]
    return found


LIES: list[Callable[[dict[str, Any]], object]] = [
    lambda r: r["inputs"][0].update(reader="eval"),
    lambda r: r["early"]["nodes"][0].update(operator="System"),
    lambda r: r["early"]["nodes"][0].update(inputs=["other"]),
    lambda r: r["early"].update(outputs=["other"]),
    lambda r: _keys(r).update(kind="code"),
    lambda r: _keys(r).update(kind="tensor", dtype="int64"),
    lambda r: r["early"]["nodes"][1]["attributes"]["values_int64s"].update(kind="int", ints=[]),
    lambda r: r["early"].update(constants={"c": {"kind": "tensor", "ints": [2**62, 2**62],
                                                 "texts": ["00"], "dtype": "int64"}}),
    lambda r: r.update(early=None),
    lambda r: r.pop("name"),
]  # fmt: skip


@pytest.mark.parametrize("change", LIES)
def test_records_that_lie_are_refused(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    path = tmp_path / "c.anydim"
    ad.compile(classifier()[0]).save(path)
    edited(path, change)
    with pytest.raises(ad.ArtefactError):
        ad.load(path)


@pytest.mark.parametrize("given", [
    3, -(2**62), 0.1, float("-inf"), "text", "", (1, 2), (0.5, 1e-45), ("a", "ü"), (),
    np.arange(6, dtype=np.int64).reshape(2, 3), np.array(["a", ""], object).reshape(1, 2),
    np.array(2.5, np.float32), np.zeros((0, 3)),
], ids=str)  # fmt: skip
def test_values_come_back(given: Any) -> None:
    from anydim.deploy.string_records import SavedValue, _value

    again = _value(parse_record(SavedValue, print_record(saved_value(given))))
    if isinstance(given, np.ndarray):
        assert again.dtype == given.dtype and again.shape == given.shape
        assert again.tolist() == given.tolist()
    else:
        assert again == given and type(again) is type(given)


def test_records_have_defaults() -> None:
    record = SavedStrings("m", (), (), None, None)
    assert parse_record(SavedStrings, print_record(record)) == record
