"""Promise: a frontend, a target and a template are each one folder and one line of a table."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import pytest
from click.testing import CliRunner

import anydim as ad
from anydim.base.errors import OptionError
from anydim.cli.app import main
from anydim.compiler.frontends import table
from anydim.compiler.frontends.frontend import Prepared
from anydim.compiler.kernels import schedule
from anydim.compiler.targets.llvm import llvm_target
from anydim.compiler.targets.targets import TARGETS
from anydim.sizes import given_dims
from tests.toys.narrow_vectors.target import NARROW
from tests.toys.negation.template import template
from tests.toys.polynomial.frontend import POLYNOMIALS, Polynomial, PolynomialFrontend

SIZES = (0, 1, 7, 8, 9, 31, 1000)
CUBIC = Polynomial((1.0, -2.0, 0.5, 3.0))


@pytest.fixture
def toys() -> Iterator[None]:
    """The three lines."""
    with patch.dict(schedule._SCHEDULES):
        templates = (template(), *llvm_target.TEMPLATES)
        with (
            patch.object(table, "FRONTENDS", (POLYNOMIALS, *table.FRONTENDS)),
            patch.dict(TARGETS, {NARROW.name: NARROW}),
            patch.object(llvm_target, "TEMPLATES", templates),
        ):
            yield


def values(size: int) -> numpy.ndarray:
    return numpy.linspace(-2, 2, size, dtype=numpy.float32)


def expected(x: numpy.ndarray) -> numpy.ndarray:
    return numpy.polynomial.polynomial.polyval(x.astype(numpy.float64), CUBIC.coefficients)


def negated() -> ad.Builder:
    g = ad.Builder("negated")
    x = g.input("x", ad.float32, (g.dim("n", 0, 4096),))
    g.output("y", g.neg(x))
    return g


@pytest.mark.parametrize("target", ["llvm", "narrow"])
def test_a_polynomial_is_compiled(toys: None, target: str) -> None:
    model = ad.compile(CUBIC, dims={"n": (0, 4096)}, target=target)
    assert model.dims.dim("n").hi == 4096
    for size in SIZES:
        x = values(size)
        found = model(x=x)["y"]
        # four roundings to float32 of terms up to 2 ** 3 * 3
        numpy.testing.assert_allclose(found, expected(x), rtol=0, atol=4 * 32 * 2.0**-24)


def test_its_file_is_run_by_the_command_line(toys: None, tmp_path: Path) -> None:
    path, x, y = tmp_path / "cubic.poly", tmp_path / "x.npy", tmp_path / "y.npz"
    path.write_text(" ".join(map(str, CUBIC.coefficients)), "utf-8")
    numpy.save(x, values(9))
    done = CliRunner().invoke(main, ["run", str(path), "--input", f"x={x}", "--output", str(y)])
    assert done.exit_code == 0, done.output
    numpy.testing.assert_allclose(numpy.load(y)["y"], expected(values(9)), rtol=0, atol=1e-5)
    refused = CliRunner().invoke(main, ["bench", str(path), "--against", "onnxruntime"])
    assert refused.exit_code == 2
    assert "it cannot run cubic.poly, a polynomial" in refused.output


def test_it_is_named_where_other_sources_are_refused(toys: None) -> None:
    with pytest.raises(OptionError, match=r"a Polynomial, or the path of a \.poly file"):
        ad.compile(3.5)
    with pytest.raises(OptionError, match="operators were given"):
        ad.compile(CUBIC, operators={"my.ops": "def f(float(N) x) -> (y) { y(i) = x(i) }"})


def test_its_model_is_pickled(toys: None) -> None:
    model = pickle.loads(pickle.dumps(ad.compile(CUBIC)))
    numpy.testing.assert_allclose(model(x=values(7))["y"], expected(values(7)), atol=1e-5)


def test_a_target_is_known_by_its_name(toys: None) -> None:
    model = ad.compile(negated(), options=ad.Options(target="narrow"))
    with pytest.raises(OptionError, match="did you mean 'narrow'"):
        ad.compile(negated(), target="narow")
    with ad.settings.override(target="narrow"):
        other = ad.compile(negated())
    for size in SIZES:
        numpy.testing.assert_array_equal(model(x=values(size))["y"], -values(size))
        numpy.testing.assert_array_equal(other(x=values(size))["y"], -values(size))


def test_a_template_makes_the_kernels_that_it_matches(toys: None) -> None:
    model = ad.compile(negated(), threads=2)
    assert "negation()" in model.explain(details=True)
    for size in SIZES:
        numpy.testing.assert_array_equal(model(x=values(size))["y"], -values(size))


class Doubled(PolynomialFrontend):
    """Its models return twice the value."""

    def prepare(self, source: Any, options: Any) -> Prepared:
        graph = self.read(source, given_dims(options.dims), None, False)
        return Prepared(graph, options.changed(dims=None), lambda model: TwiceAsMuch(model))


class TwiceAsMuch:
    def __init__(self, model: ad.Model) -> None:
        self.model = model

    def __call__(self, x: numpy.ndarray) -> numpy.ndarray:
        return 2 * self.model(x=x)["y"]


def test_a_frontend_may_wrap_the_model() -> None:
    with patch.object(table, "FRONTENDS", (Doubled(), *table.FRONTENDS)):
        model = ad.compile(CUBIC, {"n": (0, 9)}, threads=2)
    assert isinstance(model, TwiceAsMuch)
    assert model.model.dims.dim("n").hi == 9 and model.model.program.threads == 2
    numpy.testing.assert_allclose(model(values(7)), 2 * expected(values(7)), atol=1e-5)


def test_without_the_lines_they_are_unknown() -> None:
    with pytest.raises(OptionError, match="cannot compile a value of type Polynomial"):
        ad.compile(CUBIC)
    with pytest.raises(OptionError, match="there is no target 'narrow'"):
        ad.compile(negated(), target="narrow")
    assert "negation()" not in ad.compile(negated()).explain(details=True)


def test_a_process_that_finds_a_program_on_disk_imports_no_code_generator(tmp_path: Path) -> None:
    """Frontends identify a source in memory; nothing that reads it is imported."""
    script = (
        "import sys, onnx, anydim as ad\n"
        "from onnx import TensorProto as T, helper as h\n"
        "x, y = (h.make_tensor_value_info(n, T.FLOAT, ['n']) for n in 'xy')\n"
        "graph = h.make_graph([h.make_node('Neg', ['x'], ['y'])], 'f', [x], [y])\n"
        "ad.compile(h.make_model(graph, opset_imports=[h.make_opsetid('', 17)]))\n"
        "import json; print(json.dumps([m for m in sys.modules if m.startswith('anydim.')]))\n"
    )
    environment = {
        "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
    found = set(json.loads(done.stdout))
    assert "anydim.compiler.frontends.table" in found
    assert (
        not {"anydim.compiler.pipeline", "anydim.compiler.frontends.onnx.importer", "anydim.lang"}
        & found
    )
