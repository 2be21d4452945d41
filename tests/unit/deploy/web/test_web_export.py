"""Promise: a model exported for browsers is the compiled model, at any sizes in one instance, and
answers invalid calls and files with texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.deploy.web import link
from tests.unit.compiler.native.region_cases import CASES, drawn
from tests.unit.deploy.kinds import KINDS, floats
from tests.unit.deploy.web.node import answers, call_of, needs_node, outputs

pytestmark = needs_node
SIZES = (0, 1, 2, 3, 5, 7, 11, 13, 17, 23, 31, 40)


def several() -> ad.Builder:
    """Two inputs that share a dim, one whose axis tells a dim by a multiple; two outputs."""
    g = ad.Builder("two sides")
    n, m = g.dim("n", 0, 40), g.dim("m")
    x, y = g.input("x", ad.float32, (n, m)), g.input("y'", ad.float32, (m, 2 * n))
    g.output("product", g.matmul(x, y))
    g.output("sum", g.reduce_sum(g.exp(x), axes=(1,)))
    return g


def weighted() -> ad.Builder:
    """A product with a constant of 200 KiB."""
    g = ad.Builder("weighted")
    x = g.input("x", ad.float32, (g.dim("n", 0, 1 << 20), 40))
    g.output("y", g.matmul(x, floats(np.random.default_rng(7), 40, 1280)))
    return g


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("web")
    ad.compile(several()).export(made / "several", target="wasm32")
    ad.compile(weighted()).export(made / "weighted", target="wasm32")
    return made


def assert_close(found: np.ndarray, wanted: np.ndarray, case: object) -> None:
    """The sums of a kernel for vectors of 128 bits are in another order than this machine's."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, case
    if found.dtype.kind != "f":
        assert np.array_equal(found, wanted), case
        return
    unit = 8 * np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, wanted, unit, unit * 8, err_msg=str(case))


def pairs(n: int, m: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n + 100 * m)
    return {"x": floats(random, n, m), "y'": floats(random, m, 2 * n)}


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("relaxed", [False, True])
def test_sizes_in_turn_in_one_instance(folder: Path, relaxed: bool) -> None:
    model = ad.compile(several())
    cases = [pairs(n, m) for n in SIZES for m in (0, 1, 5, 29)]
    found = answers(folder / "several", map(call_of, cases), relaxed)
    for inputs, answer in zip(cases, found, strict=True):
        made = outputs(model, answer)
        exact = inputs["x"].astype(float) @ inputs["y'"].astype(float)
        assert np.allclose(made["product"], exact, 1e-5, 1e-5)
        assert np.allclose(made["sum"], np.exp(inputs["x"].astype(float)).sum(1), 1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_models_of_all_kinds(name: str, tmp_path: Path) -> None:
    model = ad.compile(KINDS[name].build())
    model.export(tmp_path, target="wasm32")
    cases = list(KINDS[name].inputs())
    found = answers(tmp_path, map(call_of, cases))
    for inputs, answer in zip(cases, found, strict=True):
        made = outputs(model, answer)
        for output, wanted in model(**inputs).items():
            assert_close(made[output], wanted, (name, inputs))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("recurrent", "appended") else pytest.mark.slow)
        for name in CASES
    ],
)
def test_graphs_of_regions(name: str, tmp_path: Path) -> None:
    model = ad.compile(CASES[name]().graph)
    model.export(tmp_path, target="wasm32")
    cases = [
        {k: np.asarray(v) for k, v in inputs.items()} for inputs, _ in drawn(CASES[name](), 20)
    ]
    found = answers(tmp_path, map(call_of, cases))
    for inputs, answer in zip(cases, found, strict=True):
        made = outputs(model, answer)
        for output, wanted in model(**inputs).items():
            assert_close(made[output], wanted, (name, inputs))


@pytest.mark.parametrize("relaxed", [False, True])
def test_rows_beside_nan_keep_their_bits(relaxed: bool, tmp_path: Path) -> None:
    """Steps are not fused there, so rows have no division by a shared reciprocal, which is exact
    with fused steps only, and which vectors with NaN do not take."""
    g = ad.Builder("rows")
    g.output("y", g.softmax(g.input("x", ad.float32, (g.dim("n"), 16, 4))))
    model = ad.compile(g)
    model.export(tmp_path, target="wasm32")
    whole = floats(np.random.default_rng(0), 31, 16, 4)
    broken = whole.copy()
    broken.reshape(-1)[::37] = np.nan
    found = answers(tmp_path, [call_of({"x": each}) for each in (whole, broken)], relaxed)
    right, came = (outputs(model, each)["y"] for each in found)
    clean = ~np.isnan(broken).any(-1)
    assert np.array_equal(came[clean], right[clean]) and np.isnan(came[~clean]).all()


def test_calls_at_once_do_not_mix(folder: Path) -> None:
    cases = [call_of(pairs(n, m)) for n in (1, 40, 3, 17) for m in (5, 300, 0)]
    alone = answers(folder / "several", cases)
    assert answers(folder / "several", cases, together=True) == alone


def test_arrays_of_numbers_are_converted(folder: Path) -> None:
    code = """Object.values(await model.run({
      x: {data: [0, Math.log(2)], shape: [1, 2]}, "y'": {data: [1, 2, 3, 4], shape: [2, 2]},
    })).map(({data}) => Array.from(data, (v) => Math.round(1e4 * v) / 1e4))"""
    (found,) = answers(folder / "several", [{"code": code}])
    assert found["value"] == [[2.0794, 2.7726], [3]]


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_few_bits_keep_their_width(bits: int, tmp_path: Path) -> None:
    random, depth, columns = np.random.default_rng(bits), 256, 64
    codes = random.integers(0, 256, (columns, depth // 32, 4 * bits)).astype(np.uint8)
    scales = random.random(columns * depth // 32).astype(np.float32) / 100
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", depth])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", columns])
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": 32}
    node = helper.make_node(
        "MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **attributes
    )
    held = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph([node], "few bits", [given], [made], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = ad.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    model.export(tmp_path, target="wasm32")
    whole = codes.nbytes + scales.nbytes
    assert whole <= (tmp_path / "model.weights").stat().st_size < whole + 4096
    cases = [{"x": floats(random, n, depth)} for n in (0, 1, 2, 3, 17)]
    for relaxed in (False, True):
        found = answers(tmp_path, map(call_of, cases), relaxed)
        for inputs, answer in zip(cases, found, strict=True):
            made_here = outputs(model, answer)["y"]
            np.testing.assert_allclose(made_here, model(**inputs)["y"], 1e-4, 1e-4)


# ---- memory ------------------------------------------------------------------------------------


def test_memory_is_that_of_a_call(folder: Path) -> None:
    calls = [{"code": 'model.memory({n: 7, m: 13})'},
             {"code": 'model.memory({x: [7, 13], "y\'": [13, 14]})'},
             {"code": "model.shapes({n: 7, m: 13})"}]  # fmt: skip
    by_dims, by_shapes, shapes = (each["value"] for each in answers(folder / "several", calls))
    assert by_dims == by_shapes
    assert by_dims["weights"] == (folder / "several" / "model.weights").stat().st_size
    assert by_dims["inputs"] >= 4 * (7 * 13 + 13 * 14) and by_dims["outputs"] >= 4 * (7 * 14 + 7)
    assert shapes == {"x": [7, 13], "y'": [13, 14]}


def test_memory_of_a_large_call_returns(folder: Path) -> None:
    run = "await model.run({x: {data: new Float32Array(40 * %d), shape: [%d, 40]}})"
    small, large = run % (3, 3), run % (9000, 9000)
    code = f"""await (async () => {{
      const bytes = [model.bytes];
      const before = ({small}).y.data;
      bytes.push(model.bytes); {large}; bytes.push(model.bytes);
      return {{bytes, same: ({small}).y.data.every((v, n) => v === before[n])}};
    }})()"""
    (kept,) = answers(folder / "weighted", [{"code": code}], keep=1 << 30)
    (freed,) = answers(folder / "weighted", [{"code": code}], keep=0)
    assert kept["value"]["same"] and freed["value"]["same"]
    first, _, last = freed["value"]["bytes"]
    assert last == first < 2 << 20
    assert kept["value"]["bytes"][2] > 9000 * 4 * (1280 + 40)


def test_trim_gives_the_memory_of_calls_back(folder: Path) -> None:
    run = (
        "(await model.run({x: {data: new Float32Array(40 * %d).fill(1), shape: [%d, 40]}})).y.data"
    )
    code = f"""await (async () => {{
      const first = model.bytes, wanted = {run % (3, 3)};
      {run % (9000, 9000)};
      const grown = model.bytes, left = model.trim(), made = {run % (3, 3)};
      return {{ first, grown, left, same: made.every((value, n) => value === wanted[n]) }};
    }})()"""
    (found,) = answers(folder / "weighted", [{"code": code}], keep=1 << 30)
    told = found["value"]
    assert told["same"] and told["left"] == told["first"] < 2 << 20 < told["grown"]


@pytest.mark.parametrize("way", ["trim()", "close()", "bytes"])  # the last: by the call itself
def test_memory_of_the_process_returns(folder: Path, way: str) -> None:
    """Resident memory, after a call of 300 MB in an instance of 1 MB."""
    keep = {"keep": 1 << 30} if way == "trim()" else {}
    code = """await (async () => {
      const held = () => process.memoryUsage().rss / 2 ** 20;
      const rows = 60000, idle = held();
      await model.run({ x: { data: new Float32Array(40 * rows), shape: [rows, 40] } });
      const grown = held();
      const wait = () => new Promise((then) => setTimeout(then, 100));
      model.WAY;
      for (let n = 0; n < 50 && held() - idle > 100; n++) await wait();
      return { grown: grown - idle, left: held() - idle };
    })()""".replace("WAY", way)
    (found,) = answers(folder / "weighted", [{"code": code}], **keep)
    assert found["value"]["grown"] > 500 and found["value"]["left"] < 150, found


def test_more_than_four_gigabytes_is_an_error(folder: Path) -> None:
    code = "model.run({x: {data: new Float32Array(40 * 2 ** 20), shape: [2 ** 20, 40]}})"
    again = "model.run({x: {data: new Float32Array(40), shape: [1, 40]}}).then(({y}) => y.shape)"
    large, small = answers(folder / "weighted", [{"code": code}, {"code": again}])
    assert large["ours"] and "WebAssembly has 4 GB" in large["error"]
    assert small["value"] == [1, 1280]


# ---- invalid calls -----------------------------------------------------------------------------

X, Y = "x: {data: [1], shape: [1, 1]}", '"y\'": {data: [1, 2], shape: [1, 2]}'
CALLS = {
    "null": "expected inputs by name, came null",
    "{}": "input 'x' is missing: expected float32[n, m]",
    f"{{{X}}}": "input 'y'' is missing: expected float32[m, 2*n]",
    f"{{{X}, {Y}, z: 1}}": "expected inputs 'x', 'y'', came 'z' too",
    f"{{x: 1, {Y}}}": "input 'x': expected float32[n, m], came shape undefined",
    f"{{x: {{data: [1], shape: 1}}, {Y}}}": "input 'x': expected float32[n, m], came shape 1",
    f"{{x: {{data: [1], shape: [1]}}, {Y}}}": "expected float32[n, m], came [1], 1 axes",
    f"{{x: {{data: [1], shape: [1, -1]}}, {Y}}}": "came sizes [1, -1]",
    f"{{x: {{data: [1], shape: [1, 1.5]}}, {Y}}}": "came sizes [1, 1.5]",
    f"{{x: {{data: [1], shape: [1, '1']}}, {Y}}}": 'came sizes [1, "1"]',
    f"{{x: {{data: [1], shape: [1, 2 ** 53]}}, {Y}}}": "came sizes [1, 9007199254740992]",
    f"{{x: {{shape: [1, 1]}}, {Y}}}": "expected a Float32Array for float32[n, m], came undefined",
    f"{{x: {{data: new Float64Array(1), shape: [1, 1]}}, {Y}}}": "came a Float64Array",
    f"{{x: {{data: new DataView(new ArrayBuffer(4)), shape: [1, 1]}}, {Y}}}": "came DataView of 4",
    f"{{x: {{data: ['a'], shape: [1, 1]}}, {Y}}}": 'came "a" at 0',
    f"{{x: {{data: [null], shape: [1, 1]}}, {Y}}}": "came null at 0",
    f"{{x: {{data: [1, 2], shape: [1, 1]}}, {Y}}}": "expected 1 elements for shape [1, 1], came 2",
    f"{{{X}, \"y'\": {{data: [1, 2, 3], shape: [1, 3]}}}}":
        "input 'y'': axis 1 is not 2*n, as other axes determine it; expected shape [m, 2*n]; "
        "came 'x' [1, 1], 'y'' [1, 3]",
    "{x: {data: new Float32Array(41), shape: [41, 1]}, \"y'\": {data: [], shape: [1, 0]}}":
        "dim 'n' is above its bound 40; expected shape [n, m]; came 'x' [41, 1], 'y'' [1, 0]",
}  # fmt: skip


def test_invalid_calls_are_texts_and_leave_the_model_usable(folder: Path) -> None:
    right = {"code": f"model.run({{{X}, {Y}}}).then((made) => Array.from(made.product.data))"}
    calls: list[dict[str, Any]] = []
    for text in CALLS:
        calls += [{"code": f"model.run({text})"}, right]
    found = answers(folder / "several", calls)
    for (text, wanted), wrong, usable in zip(CALLS.items(), found[::2], found[1::2], strict=True):
        assert wrong.get("ours"), (text, wrong)
        assert wrong["error"].startswith("two sides: ") and wanted in wrong["error"], wrong
        assert usable["value"] == [1, 2]


@pytest.mark.parametrize(
    "code, wanted",
    [
        ("memory({n: 3})", "the sizes of float32[n, m] 'x' are not given by 'n'"),
        ("memory({k: 3})", "expected dims 'n', 'm' or inputs 'x', 'y'', came 'k'"),
        ("memory({n: 41, m: 1})", "dim 'n' is above its bound 40"),
        ("memory(3)", "expected sizes of dims or shapes of inputs, came 3"),
        ("close() ?? model.bytes", "the model is closed"),
    ],
)
def test_invalid_requests_are_texts(folder: Path, code: str, wanted: str) -> None:
    (found,) = answers(folder / "several", [{"code": f"model.{code}"}])
    assert found["ours"] and wanted in found["error"], found


def test_indices_out_of_range_are_errors_with_the_inputs_name(tmp_path: Path) -> None:
    ad.compile(KINDS["encoder"].build()).export(tmp_path, target="wasm32")
    good, bad = ({"ids": np.array(ids)} for ids in ([1, 30], [1, 31]))
    first, second, third = answers(tmp_path, map(call_of, (good, bad, good)))
    assert second["ours"] and "an index is outside -(31)..30" in second["error"]
    assert "came 'ids' [2]" in second["error"]
    assert first == third and "outputs" in first


# ---- weights and modules -----------------------------------------------------------------------


def changed(folder: Path, place: Path, change: Any) -> Path:
    data = bytearray((folder / "weighted" / "model.weights").read_bytes())
    place.write_bytes(change(data))
    return place


def _flip(at: int) -> Any:
    def change(data: bytearray) -> bytearray:
        data[at] ^= 1
        return data

    return change


@pytest.mark.parametrize(
    "change, wanted",
    [
        (lambda data: b"", "is not whole: expected 204864 bytes, came 0"),
        (lambda data: data[:100], "is not whole: expected 204864 bytes, came 100"),
        (lambda data: data[:-1], "is not whole: expected 204864 bytes, came 204863"),
        (lambda data: data + b"x", "has more bytes: expected 204864, came"),
        (_flip(3), "is damaged or another model's: expected the header 616e796469"),
        (_flip(60), "is damaged or another model's: expected the header 616e796469"),
        (_flip(64), "is damaged: expected the sums"),
        (_flip(-1), "is damaged: expected the sums"),
    ],
    ids=["none", "short", "less", "more", "magic", "digest", "first", "last"],
)
def test_changed_weights_are_errors(folder: Path, tmp_path: Path, change: Any, wanted: str) -> None:
    place = changed(folder, tmp_path / "model.weights", change)
    (found,) = answers(folder / "weighted", [], weights=str(place))
    assert found["ours"] and f"{place} {wanted}" in found["error"], found


def test_compiled_modules_are_known_by_their_mark(folder: Path) -> None:
    place = json.dumps((folder / "weighted" / "model.js").as_uri())
    code = """(async () => {{
      const files = await import("node:fs"), {{ load }} = await import({place});
      const bytes = files.readFileSync(new URL("../{name}/model.wasm", {place}));
      const other = await load({{ wasm: await WebAssembly.compile(bytes) }});
      return (await other.run({{ x: {{ data: new Float32Array(40), shape: [1, 40] }} }})).y.shape;
    }})()"""
    codes = [{"code": code.format(name=name, place=place)} for name in ("weighted", "several")]
    own, another = answers(folder / "weighted", codes)
    assert own["value"] == [1, 1280]
    assert (
        another["ours"] and "the module is another model's: expected one marked" in another["error"]
    )


def test_other_files_are_errors(folder: Path, tmp_path: Path) -> None:
    other = folder / "several" / "model.weights"
    (found,) = answers(folder / "weighted", [], weights=str(other))
    assert found["ours"] and f"{other} is damaged or another model's" in found["error"], found
    (found,) = answers(folder / "weighted", [], weights=str(tmp_path / "none"))
    assert found["ours"] and "cannot be read" in found["error"], found
    for name, wanted in (("several", "another model's: expected"), ("none", "cannot be read")):
        (found,) = answers(folder / "weighted", [], wasm=str(folder / name / "model.wasm"))
        assert found["ours"] and wanted in found["error"], found
    (found,) = answers(folder / "weighted", [], wasm=str(other), verify=False)
    assert found["ours"] and "cannot be compiled" in found["error"], found
    (found,) = answers(folder / "weighted", [], wheights=1)
    assert found["ours"] and "load has no options 'wheights'" in found["error"], found


# ---- the export --------------------------------------------------------------------------------


def test_the_folder(folder: Path) -> None:
    names = {
        "index.html", "model-relaxed.wasm", "model-threads-relaxed.wasm", "model-threads.wasm",
        "model.d.ts", "model.js", "model.wasm", "model.weights", "package.json",
    }  # fmt: skip
    assert {each.name for each in (folder / "several").iterdir()} == names
    assert json.loads((folder / "several" / "package.json").read_text("utf-8"))["type"] == "module"
    types = (folder / "several" / "model.d.ts").read_text("utf-8")
    assert '/** float32[m, 2*n] */\n  "y\'": Tensor<Float32Array | number[]>;' in types


def test_modules_have_no_weights(folder: Path) -> None:
    sizes = {
        name: (folder / name / "model.wasm").stat().st_size for name in ("several", "weighted")
    }
    assert max(sizes.values()) < 200_000 < (folder / "weighted" / "model.weights").stat().st_size


def test_names_of_any_characters(tmp_path: Path) -> None:
    g = ad.Builder('*/ `${1}` </script>\n"ä')
    x = g.input("__proto__", ad.float32, (g.dim("constructor", 0, 9),))
    g.output("*/", g.neg(x))
    model = ad.compile(g)
    model.export(tmp_path, target="wasm32")
    code = """model.run({["__proto__"]: {data: [1, 2], shape: [2]}}).then(
      (y) => Array.from(y["*/"].data))"""
    (found,) = answers(tmp_path, [{"code": code}])
    assert found["value"] == [-1, -2]
    assert "</script>" not in (tmp_path / "index.html").read_text("utf-8").split("<script")[0]


def test_what_cannot_be_exported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ad.compile(several())
    (tmp_path / "model.js").write_text("mine", "utf-8")
    with pytest.raises(ad.OptionError, match=r"already holds 'model\.js', which no export wrote"):
        model.export(tmp_path, target="wasm32")
    with pytest.raises(ad.OptionError, match="threads"):
        model.export(tmp_path / "new", target="wasm32", threads=0)
    with pytest.raises(ad.OptionError, match="saved models run in Python"):
        model.save(tmp_path / "model.anydim", ["wasm32"])
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ad.MissingError, match="there is no linker for WebAssembly"):
        model.export(tmp_path / "new", target="wasm32")
    assert not (tmp_path / "new").exists()
