"""Promise: the assembly of a kernel names its loops, and is that of the object that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy
import pytest

import anydim as ad
from anydim.base.errors import OptionError
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.targets.llvm.compiler import assembly, compile_modules, machine_code
from anydim.compiler.targets.llvm.render import level_of, render
from anydim.compiler.targets.processor import describe_processor
from anydim.compiler.targets.target import Source
from anydim.compiler.targets.targets import target

PROCESSOR = target().processor


def network() -> ad.Builder:
    graph = ad.Builder("net")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 640), graph.dim("m", 1, 64)))
    products = graph.matmul(x, graph.transpose(x, perm=(1, 0)))
    graph.output("y", graph.softmax(graph.tanh(products), axis=-1))
    weights = graph.constant(numpy.ones((3, 1, 3, 3), numpy.float32))
    image = graph.input("image", ad.float32, (1, 3, graph.dim("h", 3, 99), graph.dim("w", 3, 99)))
    graph.output("z", graph.conv(image, weights, groups=3))
    return graph


MODEL = ad.compile(network(), strategy="generic")


def codes() -> Iterator[Kernel | Library]:
    for kernel in MODEL.report.kernels.values():
        yield kernel
        yield from kernel.libraries


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("code", list(codes()), ids=lambda code: code.name)
def test_names_of_loops_change_no_object(code: Kernel | Library) -> None:
    level = level_of(code, PROCESSOR)
    plain, named = (render(code, level, names=names) for names in (False, True))
    assert plain != named and ".for." in named and ".for." not in plain
    sources = {"plain": Source.of(plain), "named": Source.of(named)}
    with ad.settings.override(use_cache=False):
        objects = compile_modules(sources, level).code
    assert objects["plain"] == objects["named"]
    assert assembly(named, level).count("\n") == assembly(plain, level).count("\n")


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_loops_say_their_variables(name: str) -> None:
    processor = describe_processor(name)
    kernels = (kernel for kernel in MODEL.report.kernels.values() if "rows" in kernel.name)
    for kernel in kernels:
        found = machine_code(kernel, processor)
        shown = set(re.findall(r"^\.LBB\w+:\s+(?:#|//) for (\w+)", found, re.MULTILINE))
        assert shown and not re.search(r"%b\d+\.for\.\w+$", found, re.M)
        text = MODEL.show("kernels", kernel.name)
        assert shown <= set(re.findall(r"for (\w+) in", text))


def test_one_kernel_is_chosen() -> None:
    names = [site.kernel for site in MODEL.program.sites]
    assert len(names) > 1
    everything = MODEL.show("assembly")
    assert "choose a kernel" in everything and all(name in everything for name in names)
    assert ".text" not in everything
    for site in MODEL.program.sites:
        found = MODEL.show("assembly", site.kernel)
        assert found.startswith(("# kernel ", "// kernel "))
        assert f"kernel {site.kernel}, 1 launch" in found.partition("\n")[0]
        assert f"{site.kernel}:" in found and found.count(" kernel ") == 1
        assert MODEL.show("assembly", site.names[0]) == found
    library = next(code for code in codes() if isinstance(code, Library))
    assert f"calls library {library.name}" in MODEL.show("assembly", "*matmul*")
    assert f"library {library.name} of " in MODEL.show("assembly", library.name)


@pytest.mark.parametrize("stage", ["kernels", "llvm"])
def test_other_stages_take_a_kernel(stage: str) -> None:
    texts = [MODEL.show(stage, site.kernel) for site in MODEL.program.sites]
    assert len(set(texts)) == len(texts)
    assert all(text in MODEL.show(stage) for text in texts)


def test_a_model_of_one_kernel_needs_no_choice() -> None:
    graph = ad.Builder("one")
    graph.output("y", graph.neg(graph.input("x", ad.float32, (graph.dim("n"),))))
    assert ".text" in ad.compile(graph).show("assembly")


@pytest.mark.parametrize(("ask", "problem"), [
    (lambda: MODEL.show("assembly", "nothing"), "no kernel matches 'nothing'"),
    (lambda: MODEL.show("views", "rows"), "stage 'views' has no text for each kernel"),
    (lambda: MODEL.show("kernels", 3), "kernel is 3, expected a text"),
    (lambda: ad.compile(network(), target="c").show("assembly", "rows"), "target 'c' makes none"),
])  # fmt: skip
def test_what_cannot_be_shown(ask: Callable[[], str], problem: str) -> None:
    with pytest.raises(OptionError, match=re.escape(problem)):
        ask()
