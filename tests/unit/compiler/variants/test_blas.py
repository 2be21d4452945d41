"""Promise: under `library` plain products are a BLAS's, right at every size; the rest is not."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.compiler.variants import blas_libraries
from anydim.compiler.variants.blas_libraries import open_library
from anydim.compiler.variants.strategies import Adaptive, Library, strategy_of

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
OPENBLAS = 'library("openblas")'


def dense(dtype: str = "float32") -> bytes:
    """relu(x @ w + c) times its own transpose, and times a third matrix."""
    random = numpy.random.default_rng(0)
    w, c = random.standard_normal((33, 48)).astype(dtype), random.standard_normal(48).astype(dtype)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["r", "t"], ["y"]),
        helper.make_node("MatMul", ["t", "v"], ["z"]),
    ]
    kind = TYPES[dtype]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", kind, ["b", "s", 33]),
         helper.make_tensor_value_info("v", kind, ["b", "s", "n"])],
        [helper.make_tensor_value_info(name, kind, None) for name in "yz"],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(c, "c")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture
def openblas() -> None:
    """The tests' own BLAS."""
    pytest.importorskip("scipy_openblas32")


def kinds(model: ad.Model) -> list[str]:
    return [site.schedule.partition("(")[0] for site in model.program.sites]


@pytest.mark.usefixtures("openblas")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_products_are_right_at_every_size(dtype: str, target: str) -> None:
    model = ad.compile(dense(dtype), threads=1, strategy=OPENBLAS, target=target)
    assert model.strategy == Library("openblas")
    assert kinds(model).count("blas") == 3
    assert "cblas_" in model.explain(details=True)
    plain = ad.compile(dense(dtype), threads=1)
    random = numpy.random.default_rng(1)
    sizes = [(0, 3, 5), (2, 0, 5), (2, 3, 0), (1, 1, 1), (3, 17, 7), (2, 16, 31), (1, 61, 64)]
    for b, s, n in sizes:
        x = random.standard_normal((b, s, 33)).astype(dtype)
        v = random.standard_normal((b, s, n)).astype(dtype)
        got, wanted = model(x=x, v=v), plain(x=x, v=v)
        for name, result in got.items():
            assert result.shape == wanted[name].shape
            # sums of at most 61 products in another order: some units of their largest term
            scale = numpy.abs(wanted[name]).max(initial=1.0)
            error = numpy.abs(result - wanted[name]).max(initial=0.0)
            assert error <= 64 * numpy.finfo(dtype).eps * scale


@pytest.mark.usefixtures("openblas")
def test_the_model_agrees_with_its_meaning_in_float64() -> None:
    assert ad.compile(dense(), threads=2, strategy=OPENBLAS).check(samples=12).ok


@pytest.mark.usefixtures("openblas")
@pytest.mark.parametrize(("count", "width"), [(1, 1), (7, 3), (64, 16)])
def test_rows_that_overlap_are_no_matrix_of_a_library(
    tmp_path: Path, count: int, width: int
) -> None:
    """Windows of a signal times a matrix: a stride that is smaller than a row."""
    text = "def windows(float(N) x, float(K,M) w) -> (y) { y(n,m) +=! x(n + k) * w(k,m) }"
    path = tmp_path / "windows.tc"
    path.write_text(text, "utf-8")
    model = ad.compile(f"{path}:windows", threads=1, strategy=OPENBLAS)
    assert "blas" not in kinds(model)
    x = numpy.arange(count + width - 1, dtype=numpy.float32)
    w = numpy.arange(width * 5, dtype=numpy.float32).reshape(width, 5)
    wanted = numpy.lib.stride_tricks.sliding_window_view(x, width) @ w
    assert numpy.array_equal(model(x=x, w=w)["y"], wanted)


@pytest.mark.usefixtures("openblas")
def test_what_is_saved_has_no_foreign_code(tmp_path: Path) -> None:
    model, plain = (ad.compile(dense(), threads=1, strategy=s) for s in (OPENBLAS, "generic"))
    model.save(tmp_path / "m.anydim")
    x = numpy.random.default_rng(2).standard_normal((2, 9, 33), numpy.float32)
    v = numpy.random.default_rng(3).standard_normal((2, 9, 5), numpy.float32)
    got, wanted = ad.load(tmp_path / "m.anydim")(x=x, v=v), plain(x=x, v=v)
    assert all(numpy.array_equal(got[name], wanted[name]) for name in wanted)


@pytest.mark.usefixtures("openblas")
def test_the_form_of_a_program_is_chosen_once() -> None:
    model, plain = ad.compile(dense(), strategy=OPENBLAS), ad.compile(dense())
    with pytest.raises(ad.OptionError, match=r"(?s)applies to a whole model.*ad\.compile"):
        plain.serve_by(OPENBLAS)
    model.serve_by(OPENBLAS)
    assert model.strategy == Library("openblas")


@pytest.mark.usefixtures("openblas")
def test_threads_of_the_model_share_a_product_and_the_library_has_none() -> None:
    model, plain = (ad.compile(dense(), threads=3, strategy=s) for s in (OPENBLAS, "generic"))
    library = open_library("openblas")
    count = library._library.scipy_openblas_get_num_threads
    count.restype = ctypes.c_int
    assert count() == 1
    random = numpy.random.default_rng(4)
    for b, s, n in [(1, 700, 3), (3, 5, 900), (7, 65, 64), (2, 129, 1), (0, 9, 9)]:
        x = random.standard_normal((b, s, 33), numpy.float32)
        v = random.standard_normal((b, s, n), numpy.float32)
        got, wanted = model(x=x, v=v), plain(x=x, v=v)
        for name, result in got.items():  # sums of at most 700 products, in another order
            scale = numpy.abs(wanted[name]).max(initial=1.0)
            numpy.testing.assert_allclose(result, wanted[name], 0, 1e-4 * scale)


@pytest.mark.usefixtures("openblas")
def test_recorded_sizes_are_prepared_for_what_is_not_the_librarys(tmp_path: Path) -> None:
    model = ad.compile(dense(), threads=1, strategy=OPENBLAS)
    with model.record(tmp_path / "sizes.jsonl"):
        model(x=numpy.zeros((1, 3, 33), "f"), v=numpy.zeros((1, 3, 2), "f"))
    model.prepare_recorded(tmp_path / "sizes.jsonl", seconds=0)
    assert isinstance(model.strategy, Adaptive)


def test_a_library_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        blas_libraries, "KNOWN", {"nobodys": ("a_package_of_nobody", "pip install it")}
    )
    with pytest.raises(ad.OptionError, match=r"(?s)'nobodys' is not installed.*pip install it"):
        ad.compile(dense(), strategy='library("nobodys")')


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/nowhere/libblas.so", "cannot be opened"),
        ("", "is not a valid name"),
        (3, "expected a path"),
    ],
)
def test_wrong_libraries_say_what_is_right(name: object, words: str) -> None:
    with pytest.raises(ad.OptionError, match=words):
        ad.compile(dense(), strategy=Library(name))  # type: ignore[arg-type]


def test_a_library_without_products_is_refused() -> None:
    with pytest.raises(ad.OptionError, match="no function cblas_sgemm"):
        open_library(ctypes.util.find_library("c") or "libc.so.6")


def test_the_text_is_the_value() -> None:
    assert strategy_of(OPENBLAS) == Library("openblas")
    assert str(Library("openblas")) == OPENBLAS
