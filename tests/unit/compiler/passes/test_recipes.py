"""Promise: a recipe is all that code is made from; any body of a site has its interface."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.base.errors import ArtefactError, InternalError, UserError
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.native.build import Assembled, build
from anydim.compiler.passes.recipes import machine_text, make, parse_machine
from anydim.compiler.passes.site_fitting import fit_kernel, size_names
from anydim.compiler.targets.targets import target
from anydim.runtime.program.program import Program
from anydim.runtime.program.recipe import Recipe, parse_recipe
from anydim.sizes import as_size
from tests.golden.files import CASES

MATMUL = "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
FEW = ("dense_gelu", "branching", "running_sum (text)")
AGAIN = """
import json, sys
import anydim.compiler.ops
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes.recipes import make
from anydim.runtime.program.recipe import parse_recipe
made = [make(parse_recipe(text), TEMPLATES) for text in json.load(sys.stdin)]
json.dump([[each.kernel.name, each.kernel.identity] for each in made], sys.stdout)
"""


def compiled(name: str) -> ad.Model:
    return ad.compile(CASES[name].source(), dims=CASES[name].dims)


def made_again(models: list[ad.Model]) -> list[list[str]]:
    """Name and identity of the kernel of each recipe, as another process makes them."""
    texts = json.dumps([recipe.text for model in models for recipe in model.program.recipes])
    run = subprocess.run(
        [sys.executable, "-c", AGAIN], input=texts, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def expected(model: ad.Model) -> list[list[str]]:
    kernels = model.report.kernels
    by_recipe = {site.recipe: kernels[site.kernel] for site in model.program.sites}
    numbers = range(len(model.program.recipes))
    return [[by_recipe[n].name, by_recipe[n].identity] for n in numbers]


def test_another_process_makes_the_same_kernels() -> None:
    models = [compiled(name) for name in FEW]
    assert all(model.program.recipes for model in models)
    assert made_again(models) == [kernel for model in models for kernel in expected(model)]


@pytest.mark.slow
def test_another_process_makes_every_kernel_of_the_corpus() -> None:
    models = [compiled(name) for name in CASES]
    assert made_again(models) == [kernel for model in models for kernel in expected(model)]


@pytest.mark.parametrize("name", FEW)
def test_a_recipe_names_the_interface_of_its_kernel(name: str) -> None:
    model = compiled(name)
    for site in model.program.sites:
        recipe = model.program.recipes[site.recipe]
        again = parse_recipe(recipe.text)
        assert (again, again.digest) == (recipe, recipe.digest)
        launch = make(again, TEMPLATES)
        assert tuple(argument.tensor for argument in launch.arguments) == recipe.operands
        assert size_names(launch) == recipe.sizes
        assert len(site.operands) == len(recipe.operands)
        assert fit_kernel(launch, recipe) is launch.kernel


def test_equal_layers_share_a_recipe() -> None:
    graph = ad.Builder()
    x = graph.input("x", ad.float32, (graph.dim("n"), 8))
    weights = [numpy.full((8, 8), value, numpy.float32) for value in (1, 2, 3)]
    for weight in weights:
        x = graph.matmul(x, graph.constant(weight))
    graph.output("y", x)
    program = ad.compile(graph).program
    assert len(program.sites) == 3
    assert len({site.recipe for site in program.sites}) == len(program.recipes) <= 2


# ---- other bodies --------------------------------------------------------------------------------


def matmul(**fixed: int) -> ad.Model:
    return ad.define(MATMUL, fixed=fixed or None).matmul.model(*operands(3, 4, 5))


def operands(m: int, k: int, n: int) -> list[numpy.ndarray]:
    random = numpy.random.default_rng(m + k + n)
    return [random.standard_normal(shape).astype(numpy.float32) for shape in ((m, k), (k, n))]


def generic_and_exact() -> tuple[ad.Model, Recipe, Launch]:
    generic, exact = matmul(), matmul(M=1, K=4, N=5)
    (recipe,), (other,) = generic.program.recipes, exact.program.recipes
    return generic, recipe, make(other, TEMPLATES)


def test_a_body_that_knows_its_sizes_has_the_interface_of_the_recipe() -> None:
    generic, recipe, launch = generic_and_exact()
    assert size_names(launch) != recipe.sizes
    body = fit_kernel(launch, recipe)
    assert len(body.sizes) == len(recipe.sizes) > len(launch.kernel.sizes) - 1
    (step,) = generic.program.regions[0].steps
    (site,) = step.segment.sites
    other = replace(
        site, kernel=body.name, parallel=launch.parallel, grain=as_size(launch.grain),
        scratch=launch.scratch,
    )  # fmt: skip
    program = Program.of(replace(step.segment, sites=(other,)))
    code = target("llvm")
    work = code.compiling(code.processor, 1)
    run = build(Assembled(program, {body.name: body}, {}), code, work).executable
    a, b = operands(1, 4, 5)
    assert (run({"A": a, "B": b})["C"] == generic(a, b)["C"]).all()


def test_a_body_that_needs_more_than_a_site_gives_is_refused() -> None:
    _, recipe, launch = generic_and_exact()
    with pytest.raises(InternalError, match="takes"):
        fit_kernel(launch, replace(recipe, operands=recipe.operands[:-1]))
    with pytest.raises(InternalError, match="which a site does not give it"):
        fit_kernel(make(recipe, TEMPLATES), replace(recipe, sizes=()))


# ---- texts that are none -------------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    ("work\n", "wrk\n"), ("launch 0", "launch x"), ("launch 0", "launch 9999999999"),
    ("machine ", "machines "), ("operands", "size 1\noperands"),
])  # fmt: skip
def test_a_text_that_is_no_recipe_is_refused(change: tuple[str, str]) -> None:
    (recipe,) = matmul().program.recipes
    assert change[0] in recipe.text
    with pytest.raises(ArtefactError):
        parse_recipe(recipe.text.replace(*change, 1))


@pytest.mark.parametrize("change", [
    {"schedule": "loom(rows=1)"}, {"work": "graph"}, {"machine": "vector_bytes=x"},
    {"work": 'graph ""\n'}, {"work": "#" * 100},
])  # fmt: skip
def test_a_recipe_that_says_nothing_makes_nothing(change: dict[str, str]) -> None:
    (recipe,) = matmul().program.recipes
    with pytest.raises(UserError):
        make(replace(recipe, **change), TEMPLATES)


def test_a_machine_is_a_text() -> None:
    machine = target("llvm").machine
    assert parse_machine(machine_text(machine)) == machine
