"""Promise: what callers give to a model with an adapter is checked, and their arrays are used."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.deploy.archive import Member, write
from anydim.deploy.container import Container
from anydim.serving import Batcher
from tests.unit.model_kinds.kinds import KINDS, complexes, floats, made

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def conjugate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A loaded model: calls of the compiled one return a tuple, as the module does."""
    path = tmp_path_factory.mktemp("complex") / "m.anydim"
    made("complex").save(path)
    return ad.load(path)


def of_conjugate(z: Any) -> Any:
    return z * 2 + z.conj()


def test_tensors_of_any_layout(conjugate: Any) -> None:
    z = torch.from_numpy(complexes(8, 8))
    for given in (z[:, ::2], z[:, :4].conj(), z.mT[:, :4], z[2:2, :4], z[:1, :4]):
        found = conjugate(given)
        torch.testing.assert_close(found["output_0"], of_conjugate(given).resolve_conj())
        array = given.resolve_conj().numpy()
        np.testing.assert_allclose(conjugate(array)["output_0"], of_conjugate(array), 1e-5)
    wanted = conjugate(z[:2, :4])["output_0"].numpy()
    np.testing.assert_array_equal(conjugate(z[:2, :4].tolist())["output_0"], wanted)


def test_results_in_tensors(conjugate: Any) -> None:
    z = torch.from_numpy(complexes(3, 4))
    out = torch.empty_like(z), torch.empty(3, 4)
    found = conjugate(z, out=out)
    assert found["output_0"] is out[0]
    torch.testing.assert_close(out[0], of_conjugate(z).resolve_conj())
    torch.testing.assert_close(out[1], z.abs())
    wanted, inside = of_conjugate(z).resolve_conj(), z.clone()
    conjugate(inside, out={"output_0": inside})
    torch.testing.assert_close(inside, wanted)
    for wrong, text in (
        (torch.empty(3, 4), "has dtype float32, the result has complex64"),
        (torch.empty(3, 5, dtype=torch.complex64), "shape"),
        (torch.empty(4, 3, dtype=torch.complex64).mT, "not contiguous"),
        (torch.empty_like(z).conj(), "conjugate bit"), ("text", "expected an array"),
    ):  # fmt: skip
        with pytest.raises(ad.InputError, match=text):
            conjugate(z, out={"output_0": wrong})


@pytest.mark.parametrize("value, text", [
    (np.zeros((3, 4), np.float32), r"expected dtype complex64, got float32"),
    (np.zeros((3, 4, 2), np.float32), "complex64"), (np.zeros((3, 4)) * 1j, "got complex128"),
    (np.zeros(4, np.complex64), r"expected 2 axes \[n, 4\], got 1 axis \[4\]"),
    (torch.zeros(4, dtype=torch.complex64), r"expected 2 axes \[n, 4\], got 1 axis \[4\]"),
    (torch.zeros(3, 4, dtype=torch.complex128), "got complex128"),
    (torch.zeros(3, 4), "got float32"), ([["a"]], "z"), ([[1], [1, 2]], "z"), ({"z": 1}, "z"),
    (torch.zeros(3, 4, dtype=torch.complex64, requires_grad=True), "requires gradients"),
])  # fmt: skip
def test_what_is_no_complex_array(conjugate: Any, value: Any, text: str) -> None:
    with Batcher(conjugate) as batcher:
        for call in (conjugate, lambda z: conjugate.profile({"z": z})):
            with pytest.raises(ad.InputError, match=text):
                call(value)
        if getattr(value, "ndim", 2) != 1:  # a row, without the axis of rows
            with pytest.raises(ad.InputError, match="z"):
                batcher({"z": value})
            with pytest.raises(ad.InputError, match="item 1: "):
                conjugate.map([complexes(1, 4), value])


def test_padding_of_complex_inputs() -> None:
    module = torch.nn.Module()
    module.forward = lambda z: z * 2  # type: ignore[method-assign]
    axes = {0: torch.export.Dim("n"), 1: torch.export.Dim("k")}
    model = ad.compile(module, (torch.from_numpy(complexes(3, 4)),), dynamic_shapes=(axes,))
    (name,) = model.input_names()
    items = [complexes(1, 3), complexes(2, 5), complexes(1, 4)[0]]
    for fill in (0, 0j, 0.0):
        found = model.map([{name: item} for item in items], pad={name: fill})
        for item, results in zip(items, found):
            np.testing.assert_allclose(next(iter(results.values())), 2 * item)
    with pytest.raises(ad.OptionError, match=r"padded with 1j\n.* with 0"):
        model.map([{name: item} for item in items], pad={name: 1j})


def test_threads_write_one_after_the_other() -> None:
    model = KINDS["stateful"].make()
    x = np.ones((2, 4), np.float32)
    threads = [threading.Thread(target=lambda: [model(x) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.asarray(model.state["total"]).tolist() == [400.0] * 4


def test_what_a_call_cannot_write_to() -> None:
    model, fixed = made("writes"), floats(3, 4)
    fixed.flags.writeable = False
    before = fixed.copy()
    for value in (fixed, fixed.tolist()):
        with pytest.raises(ad.InputError, match="'x' of Increment, which a call writes to,"):
            model(value)
    assert (fixed == before).all()
    strided = np.zeros((6, 8), np.float32)
    model(strided[::2, ::2])
    assert strided.sum() == 12 and (strided[::2, ::2] == 1).all()


def test_a_failed_call_writes_nothing() -> None:
    model = made("stateful")
    before = np.asarray(model.state["total"]).copy()
    with pytest.raises(ad.DimError):
        model(floats(70, 4))
    with pytest.raises(ad.InputError):
        model(floats(3, 4), out=np.zeros((3, 4)))
    np.testing.assert_array_equal(np.asarray(model.state["total"]), before)


def test_copies_have_a_state_of_their_own(tmp_path: Path) -> None:
    model = KINDS["stateful"].make()
    model(floats(3, 4))
    model.limit_time(50.0)
    model.save(tmp_path / "m.anydim")
    one, two = ad.load(tmp_path / "m.anydim"), pickle.loads(pickle.dumps(model))
    assert two.executable.timeout == 50.0
    three = pickle.loads(pickle.dumps(one))
    wanted = model(floats(3, 4))["output"]
    for each in (one, two, three):
        np.testing.assert_array_equal(np.asarray(each(floats(3, 4))["output"]), wanted)


def test_damaged_files(tmp_path: Path) -> None:
    model = KINDS["stateful complex"].make()
    path, other = tmp_path / "m.anydim", tmp_path / "other.anydim"
    model.save(path)
    container = Container(str(path))
    parts = {name: bytes(container.verify_member(name)) for name in container.parts}
    record = parts["tensors.json"]
    for name, data in (
        ("state/0", b"123"), ("tensors.json", record.replace(b"calls.new", b"calls.old")),
        ("tensors.json", record.replace(b'"calls"', b'"other"')), ("tensors.json", b"{}"),
        ("tensors.json", record.replace(b"float32", b"float64")),
    ):  # fmt: skip
        members = [Member(key, data if key == name else each) for key, each in parts.items()]
        members = [Member(m.name, m.data, 4096) if "code" in m.name else m for m in members]
        about = {k: v for k, v in container.about.items() if k != "members"}
        write(str(other), about, members)
        with pytest.raises(ad.ArtefactError):
            ad.load(other)
