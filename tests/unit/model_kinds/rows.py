"""Checks of public methods of models, batchers and sessions: a row is a function of a `Case`."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
import anydim.ort as ort
from anydim.api.model import Model
from anydim.runtime.signature import Signature
from anydim.serving import AsyncBatcher, Batcher
from tests.unit.model_kinds.kinds import KINDS, OF_TORCH, fresh, loaded

Row = Callable[["Case"], object]


class Case:
    """A model of a kind, and calls of it that must give the plain results."""

    def __init__(self, kind: str, form: str, folder: Path) -> None:
        if kind in OF_TORCH:
            pytest.importorskip("torch")
        self.kind, self.form, self.folder, self.of = kind, form, folder, KINDS[kind]
        self.state = {name: array.copy() for name, array in self.of.state.items()}
        self.model = fresh(kind, form, folder)

    def draw(self, count: int = 3) -> dict[str, Any]:
        return self.of.draw(count)

    def plain(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return self.of.plain(copy.deepcopy(given), self.state)

    def checked(self, call: Callable[..., Any], count: int = 3) -> dict[str, Any]:
        """The results of a call of this many rows, which are the plain ones."""
        given = self.draw(count)
        wanted, found = self.plain(given), call(**given)
        found = by_name(found, wanted)
        same(found, wanted)
        for name, array in self.state.items():
            np.testing.assert_allclose(np.asarray(self.model.state[name]), array, 1e-5, 1e-5)
        return dict(found)

    def still(self) -> None:
        """The model is as before."""
        self.checked(self.model, 2)


def by_name(found: Any, wanted: Any) -> dict[str, Any]:
    """The results of a call, which are a tuple if a module of torch returns one."""
    return dict(zip(wanted, found, strict=True)) if isinstance(found, tuple) else dict(found)


def same(found: Any, wanted: Any) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        each = found[name]
        if isinstance(value, list):
            assert len(each) == len(value)
            for one, other in zip(each, value):
                np.testing.assert_allclose(np.asarray(one), other, 1e-5, 1e-5)
        elif value.dtype == object:
            assert each.tolist() == value.tolist()
        else:
            assert each.dtype == value.dtype and each.shape == value.shape
            np.testing.assert_allclose(np.asarray(each), value, 1e-5, 1e-5)


# ---- calls ---------------------------------------------------------------------------------------


def call(case: Case) -> None:
    for count in (3, 1, 5, 3, 3):
        case.checked(case.model, count)
        case.checked(lambda **given: case.model(*given.values()), count)
    with pytest.raises(ad.InputError, match="nothing"):
        case.model(**case.draw(), nothing=1)
    with pytest.raises(ad.InputError):
        case.model()
    case.still()


def out(case: Case) -> None:
    arrays = {}

    def into(**given: Any) -> Any:
        wanted = case.of.plain(copy.deepcopy(given), copy.deepcopy(case.state))
        for name, value in wanted.items():
            if isinstance(value, list):
                value = [np.empty_like(each) for each in value]
                value = np.array(value) if value[0].ndim == 0 else value
            arrays[name] = value if isinstance(value, list) else np.empty_like(value)
        found = by_name(case.model(**given, out=arrays), arrays)
        assert all(found[name] is arrays[name] for name in arrays)
        return found

    case.checked(into)
    case.checked(lambda **given: case.model(**given, out=list(arrays.values())))
    if len(arrays) == 1:
        (only,) = arrays.values()
        case.checked(lambda **given: case.model(**given, out=only))
    with pytest.raises(ad.InputError, match="no result 'nothing'"):
        case.model(**case.draw(), out={"nothing": None})
    case.still()


def tensors(case: Case) -> None:
    torch = pytest.importorskip("torch")
    if case.model.on_strings:
        pytest.skip("torch has no strings")
    given = case.draw()
    wanted = case.plain(given)
    held = {name: [torch.from_numpy(each) for each in value] if isinstance(value, list)
            else torch.from_numpy(value) for name, value in given.items()}  # fmt: skip
    found = by_name(case.model(**held), wanted)
    single = {n: v for n, v in found.items() if not isinstance(v, (list, ad.Ragged))}
    lists = [each for v in found.values() if isinstance(v, list) for each in v]
    if case.kind not in ("lists in", "ragged"):
        assert all(isinstance(each, torch.Tensor) for each in (*single.values(), *lists))
    same({**found, **{n: np.asarray(v) for n, v in single.items()}}, wanted)


def map_(case: Case) -> None:
    items = [case.draw(count) for count in (2, 1, 4)]
    if case.kind == "ragged":
        items = [{"x": row} for row in case.draw(3)["x"]]
        found = case.model.map(items)
        for item, results in zip(items, found, strict=True):
            np.testing.assert_allclose(results["y"], 2 * item["x"])
        return
    found = case.model.map(iter(items))
    for item, results in zip(items, [*found, *case.model.map(items)]):
        same(results, case.plain(item))
    if len(items[0]) == 1:
        for item, results in zip(items, case.model.map([*(each.values() for each in items)][0:0])):
            same(results, case.plain(item))
        arrays = [next(iter(item.values())) for item in items]
        for item, results in zip(items, case.model.map(arrays), strict=True):
            same(results, case.plain(item))
        for row, results in zip(arrays[2], case.model.map(list(arrays[2]))):
            first = next(iter(case.plain({next(iter(items[0])): arrays[2]}).values()))
            assert next(iter(results.values())).shape == first.shape[1:] or not first.ndim
            assert row.ndim == arrays[2].ndim - 1
    name = next(iter(items[0]))
    with pytest.raises(ad.InputError, match="item 1"):
        case.model.map([items[0], {name: np.zeros((1, 1, 1, 1, 1), np.float32)}])


def serving(case: Case) -> None:
    case.checked(case.model.serving(case.draw()))


# ---- files and copies ----------------------------------------------------------------------------


def save(case: Case) -> None:
    case.checked(case.model)  # the file has the state of now
    path = case.folder / "again.anydim"
    case.model.save(path, progress=lambda *_: None)
    first, model, state = case.model, loaded(path, case.kind), copy.deepcopy(case.state)
    case.model = model
    for count in (3, 3, 2):
        case.checked(case.model, count)
    assert model.inputs == first.inputs and model.outputs == first.outputs
    assert model.input_names() == first.input_names()
    assert ad.inspect(path).inputs == first.inputs or first.on_strings
    case.model, case.state = first, state
    case.still()  # the loaded one has a state of its own


def export(case: Case) -> None:
    case.model.export(case.folder / "c", name="some")
    assert "some" in next((case.folder / "c").glob("*.h")).read_text("utf-8")
    case.still()


def pickled(case: Case) -> None:
    case.checked(case.model)
    first, state = case.model, copy.deepcopy(case.state)
    case.model = pickle.loads(pickle.dumps(first))
    case.checked(case.model)
    case.model, case.state = first, state
    case.still()


def copied(case: Case) -> None:
    first = case.model
    state = copy.deepcopy(case.state)
    case.model = copy.copy(first)
    case.checked(case.model)
    if case.form == "compiled":  # a shallow copy shares the state
        state = copy.deepcopy(case.state)
    case.state = copy.deepcopy(state)
    case.model = copy.deepcopy(first)
    case.checked(case.model)
    if case.form == "compiled":
        case.model, case.state = first, state
        case.still()


def session(case: Case) -> None:
    """Sessions have complex tensors as pairs, and state as inputs and results."""
    if case.kind in ("ragged", "lists in", "lists out", "device"):
        pytest.skip("sessions of a file have what its program takes, on the host")
    path = case.folder / "session.anydim"
    case.model.save(path)
    found = ort.InferenceSession(str(path))
    given, state = case.draw(), copy.deepcopy(case.state)
    wanted = {**case.plain(given), **{f"{name}.new": each for name, each in case.state.items()}}
    feeds = {n: v.view(np.float32).reshape(*v.shape, 2) if v.dtype.kind == "c" else v
             for n, v in {**given, **state}.items() if not isinstance(v, list)}  # fmt: skip
    feeds.update({name: v for name, v in given.items() if isinstance(v, list)})
    assert {each.name for each in found.get_inputs()} == set(feeds)
    names = [each.name for each in found.get_outputs()]
    for name, result in zip(names, found.run(None, feeds), strict=True):
        if name in wanted:  # not of an input that the call writes
            array = np.asarray(wanted[name])
            if array.dtype.kind == "c":
                array = array.view(np.float32).reshape(*array.shape, 2)
            same({name: np.asarray(result)}, {name: array})


# ---- batchers ------------------------------------------------------------------------------------

BATCHER = {"add", "close", "metrics", "remove", "submit"}


def batcher(case: Case) -> None:
    with Batcher(case.model) as found:
        case.checked(lambda **given: found(given))
        case.checked(lambda **given: found.submit(given).result())
        case.checked(lambda **given: found(tuple(given.values())))
        found.add("other", case.model)
        case.checked(lambda **given: found(given, "other"), 5)
        if "n" in case.model.dims.names and case.kind not in ("ragged", "lists out"):
            if not case.model.on_strings:
                found.add("joined", case.model, batch="n")
                waiting = [(count, found.submit(case.draw(count), "joined")) for count in (1, 2, 4)]
                for count, each in waiting:
                    same(each.result(), case.plain(case.draw(count)))
        (name, *_) = case.plain(case.draw())
        assert list(found(case.draw(), "other", outputs=[name])) == [name]
        with pytest.raises(ad.InputError):
            found(case.draw(), "other", outputs=["nothing"])
        with pytest.raises(ad.InputError):
            found({"nothing": 1}, "other")
        assert found.metrics() and found.remove("other")


def async_batcher(case: Case) -> None:
    async def run() -> None:
        async with AsyncBatcher(case.model) as found:
            given = case.draw()
            same(await found(given), case.plain(given))
            request = found.submit(given, keep=1)
            same(await found.outcome(request), case.plain(given))
            found.release(request)

    asyncio.run(run())


# ---- what models say -----------------------------------------------------------------------------


def texts(case: Case) -> None:
    model = case.model
    assert model.name in repr(model) and all(name in repr(model) for name in case.state)
    table = model._repr_html_()
    assert table is None or model.name in table


def ports(case: Case) -> None:
    model, given = case.model, case.draw()
    assert model.input_names() == list(given)
    specs = {spec.name: spec for spec in model.inputs}
    results = {spec.key: spec for spec in model.outputs}
    assert isinstance(model.signature, Signature) and model.name
    if model.lists:
        assert all(isinstance(name, str) for name in model.lists)
        return
    assert list(specs) == list(given)
    for told, values in ((specs, given), (results, case.plain(given))):
        assert list(told) == list(values)
        for name, array in values.items():
            assert told[name].rank == array.ndim
            wanted = "string" if array.dtype == object else array.dtype.name
            assert told[name].dtype.name == wanted


def dims(case: Case) -> None:
    names = set(case.model.dims.names)
    assert set(case.of.sizes) <= names
    assert not isinstance(case.model, Model) or set(case.model.input_dims) <= names


def bare(case: Case) -> None:
    model = case.model.bare
    assert (model is case.model) == (case.model.adapter is None)
    if case.state:
        assert set(case.state) < {spec.name for spec in model.inputs}


def state(case: Case) -> None:
    assert set(case.model.state) == set(case.state)
    for name in case.state:
        case.model.state[name][...] = 3
        case.state[name][...] = 3
    case.still()
    for name in case.state:
        with pytest.raises(ad.InputError, match="owns"):
            case.model(**case.draw(), **{name: case.state[name]})


def sizes_of(case: Case) -> dict[str, int]:
    known = dict(case.of.sizes)
    if case.kind == "lists in":
        known = {"j.size": 4, "j.size_2": 6, "parts_elements": 24, "parts_count": 3}
    return known


def plan(case: Case) -> None:
    assert case.model.plan(**sizes_of(case)).bytes >= 0
    if case.of.lengths:
        assert case.model.plan(lengths=case.of.lengths).bytes >= 0
    with pytest.raises(ad.UserError):
        case.model.plan(nothing=3)


def memory(case: Case) -> None:
    model = case.model
    assert str(model.memory) and model.memory_limit is None
    model.limit_memory(ad.MemoryLimit("1 GiB", per_call=True))
    try:
        assert model.memory_limit == 1 << 30
        case.still()
    finally:
        model.executable.most_bytes = (1 << 63) - 1
    (dim, size), *others = sizes_of(case).items()
    most = model.largest(dim, "1 MiB", **dict(others))
    assert most is None or most >= size


def explain(case: Case) -> None:
    assert case.model.program.signature.name in case.model.explain()
    assert case.model.explain(details=True)
    if case.of.lengths:
        assert "padded" in case.model.explain(lengths=case.of.lengths)


def check(case: Case) -> None:
    assert case.model.check(samples=4).ok
    case.still()


def profile(case: Case) -> None:
    given = case.draw()
    assert case.model.program.signature.name in str(case.model.profile(given, repeat=1))
    if case.form == "compiled" and not case.model.lists and not case.model.on_strings:
        case.model.profile(repeat=1, **sizes_of(case))
        case.model.profile(tuple(given.values()), repeat=1)
    case.still()


def trace(case: Case) -> None:
    assert case.model.trace(case.folder / "t.json", case.draw()).spans
    assert (case.folder / "t.json").exists()
    case.still()


def record(case: Case) -> None:
    with case.model.record(case.folder / "sizes.jsonl"):
        case.still()
    assert (case.folder / "sizes.jsonl").read_text("utf-8")


def limit_time(case: Case) -> None:
    case.model.limit_time(100.0)
    case.still()
    case.model.limit_time(None)


def keep_on_device(case: Case) -> None:
    """No kind has a CUDA device: tests/unit/runtime/devices/test_device_arrays.py has one."""
    case.model.keep_on_device()
    names = [spec.key for spec in case.model.outputs]
    for given in (names[:1], [*names, "none"], ["none"], [3], [None], [b"y"], [names]):
        with pytest.raises(ad.OptionError) as caught:
            case.model.keep_on_device(*given)
        assert caught.value.hint
    case.still()


def set_sizes(case: Case) -> None:
    names = [n for n in sizes_of(case) if n in case.model.dims.names]
    given = {name: sizes_of(case)[name] for name in names if case.kind != "lists in"}
    case.model.set_sizes(**given)
    try:
        case.checked(case.model)
        if given:
            with pytest.raises(ad.DimError):
                case.model(**case.draw(2))
    finally:
        case.model.set_sizes()
    with pytest.raises(ad.DimError, match="no dim"):
        case.model.set_sizes(nothing=3)


def trim(case: Case) -> None:
    assert case.model.trim() >= 0
    case.still()


def devices(case: Case) -> None:
    assert list(case.model.devices) == (["a"] if case.kind == "device" else [])


def records(case: Case) -> None:
    assert case.model.program is case.model.story.program
    assert isinstance(case.model.index_ranges, dict)


def adapter(case: Case) -> None:
    assert case.model.on_strings == case.kind.startswith("strings")
    found = case.model.adapter
    assert found is None or case.model.bare._adapted(found).inputs == case.model.inputs


def compiled_here(case: Case) -> None:
    model = case.model
    assert model.graph.nodes is not None and model.report.seconds is not None
    assert model.show("program")


def variants(case: Case) -> None:
    model = case.model
    if isinstance(model, Model):
        model.on_variant(None)
        assert model.kept_bodies() == [] and model.strategies == {}
    assert model.variants() == () and str(model.strategy)


def strategies(case: Case) -> None:
    model = case.model
    before = model.strategy
    model.serve_by("exact(limit=2)")
    try:
        assert model.prepare(**sizes_of(case)) >= 0
        case.checked(model)
    finally:
        model.serve_by(before)


def tune(case: Case) -> None:
    path = case.folder / "tuned.jsonl"
    with case.model.record(path):
        case.checked(case.model)
    before = case.model.strategy
    try:
        case.model.prepare_recorded(path, seconds=0.01)
        assert case.model.gains(path) is not None
        case.model.tune(path, seconds=0.01)
        case.still()
    finally:
        case.model.serve_by(before)


def load_weights(case: Case) -> None:
    """No kind here has named weights; `test_load_weights.py` has those that do."""
    for source in ({"w": np.zeros(3)}, None, b"", "none.onnx"):
        with pytest.raises(ad.OptionError) as error:
            case.model.load_weights(source)
        assert error.value.hint
    case.still()


ROWS: Mapping[str, Row] = {
    "__call__": call, "out": out, "tensors": tensors, "map": map_, "serving": serving,
    "save": save, "export": export, "pickle": pickled, "copy": copied, "session": session,
    "batcher": batcher, "async batcher": async_batcher, "repr": texts,
    "name, signature, inputs, outputs, input_names, lists": ports, "dims, input_dims": dims,
    "bare": bare, "state": state, "plan": plan,
    "memory, memory_limit, limit_memory, largest": memory, "explain": explain, "check": check,
    "profile": profile, "trace": trace, "record": record, "limit_time": limit_time,
    "keep_on_device": keep_on_device, "set_sizes": set_sizes, "load_weights": load_weights,
    "trim": trim, "devices": devices,
    "program, story, index_ranges": records, "adapter, on_strings": adapter,
    "graph, report, show": compiled_here,
    "variants, strategy, strategies, kept_bodies, on_variant": variants,
    "serve_by, prepare": strategies, "tune, gains, prepare_recorded": tune,
}  # fmt: skip
ONLY_COMPILED = {
    "save", "export", "check", "session", "graph, report, show", "serve_by, prepare",
    "tune, gains, prepare_recorded",
}  # fmt: skip
