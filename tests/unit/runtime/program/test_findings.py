"""Promise: what of a program is far from its limit is found, said in `explain` and in the log."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

import anydim as ad
from anydim.base.errors import OptionError
from anydim.runtime.program.explain import explain
from anydim.runtime.program.findings import RULES, Launched, find_unpacked, findings

LIBRARY = ad.define("""
def distances(float(N,K) a, float(K,M) b) -> (y) { y(i,j) +=! abs(a(i,k) - b(k,j)) }
def product(float(N,K) a, float(K,M) b) -> (y) { y(i,j) +=! a(i,k) * b(k,j) }
""")
SQUARE = numpy.ones((4, 4), numpy.float32)


def attention(*head: int) -> ad.Builder:
    graph = ad.Builder("attention")
    n, width = graph.dim("n", 0, 512), head[0] if head else graph.dim("d", 0, 128)
    q, k, v = (graph.input(name, ad.float32, (n, width)) for name in "qkv")
    weights = graph.softmax(graph.matmul(q, graph.transpose(k, perm=(1, 0))), axis=-1)
    graph.output("y", graph.matmul(weights, v))
    return graph


def of_constants() -> ad.Builder:
    graph = ad.Builder("constants")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64), 300))
    constant = graph.constant(numpy.zeros((4200, 4200), numpy.int8))
    weights = graph.exp(graph.cast(constant, to=ad.float32))  # 67 MiB, of 17 MiB of constants
    graph.output("y", graph.matmul(x, weights[:300, :300]))
    return graph


def test_attention_that_is_not_fused() -> None:
    (line,) = findings(ad.compile(attention()).program)
    assert line == "softmax: attention is not fused: the matrix of scores is written and read again"
    assert findings(ad.compile(attention(64)).program) == ()


def test_a_kernel_of_last_resort() -> None:
    (line,) = findings(LIBRARY.distances.model(SQUARE, SQUARE).program)
    assert "kernel of last resort (rows)" in line
    assert findings(LIBRARY.product.model(SQUARE, SQUARE).program) == ()


def test_what_depends_on_no_input(tmp_path: Path) -> None:
    model = ad.compile(of_constants())
    (line,) = findings(model.program)
    assert line == "exp: it reads constants alone, and is computed in every call"
    assert f"  warnings  {line}\n" in model.explain()
    model.save(tmp_path / "saved.anydim")
    assert line in ad.load(tmp_path / "saved.anydim").explain(details=True)


def test_a_constant_that_is_not_packed() -> None:
    graph = ad.Builder("product")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64), 300))
    graph.output("y", graph.matmul(x, graph.constant(numpy.ones((300, 300), numpy.float32))))
    program = ad.compile(graph).program
    (segment,) = program.segments
    (site,) = segment.sites
    assert "packed=true" in site.schedule and findings(program) == ()
    plain = replace(site, schedule=site.schedule.replace("packed=true", "packed=false"))
    assert "is not packed" in find_unpacked(Launched(program, segment, 0, plain, ""))


def test_a_summary_stands_before_the_rest() -> None:
    model = ad.compile(attention(64))
    summary, _, rest = model.explain().partition("\n\n")
    for part in (
        "attention(q:", "  dims      n=0..512", "  code      1 launch of 1 kernel, 1 thread",
        "  memory    ", "  constants ", "nodes fused into 1 launch", "  warnings  none",
    ):  # fmt: skip
        assert part in summary, part
    assert "  template " in rest and "explain(details=True)" in rest
    everything = model.explain(details=True)
    assert "schedule: " in everything and "schedule: " not in summary + rest
    assert everything.startswith(summary.partition("\n  notes")[0])


def products(layers: int) -> ad.Builder:
    """A chain of so many products, none of a packed constant, of nodes with long names."""
    graph = ad.Builder("products")
    x = graph.input("x", ad.float32, (graph.dim("a_dim_with_a_rather_long_name", 0, 64), 48))
    for number in range(layers):
        weights = graph.constant(numpy.full((48, 48), number, numpy.float32))
        x = graph.relu(graph.add(graph.matmul(x, weights), x))
    graph.output("y", x)
    return graph


def test_a_summary_fits_a_screen() -> None:
    """However many launches, notes and warnings there are."""
    model = ad.compile(products(60))
    notes = [f"a note with many words, such as these: {number}" * 4 for number in range(99)]
    for text in (model.explain(), explain(model.program, notes, ["a body"] * 99)):
        lines = text.split("\n")
        assert len(lines) <= 40 and max(map(len, lines)) <= 100
    assert "and 94 more" in text
    assert len(model.explain(details=True).split("\n")) > 60


def test_some_kernels_alone() -> None:
    model = ad.compile(of_constants())
    (product,) = (site.kernel for site in model.program.sites if "matmul" in site.source)
    for pattern in (product, product[:-6], "matmul", "mat*", "?atmul"):
        assert model.explain(pattern).startswith(f"kernel {product}: 1 launch\n  schedule: ")
        assert "exp" not in model.explain(pattern)
    assert model.explain("*").count("kernel ") == 2
    with pytest.raises(OptionError, match="no node or kernel matches 'matmull'") as caught:
        model.explain("matmull")
    assert caught.value.hint == "did you mean 'matmul'?"
    with pytest.raises(OptionError, match="pattern is 3, expected a text"):
        model.explain(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="details is 1, expected True or False"):
        model.explain(details=1)  # type: ignore[arg-type]


def test_the_log_tells_what_was_compiled_and_what_is_far_from_its_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="anydim"):
        ad.compile(attention())
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING"]
    assert caplog.records[0].getMessage().startswith("attention: 3 launches; ")
    assert "attention: softmax: attention is not fused" in caplog.text


def test_the_log_is_quiet_by_default() -> None:
    script = (
        "import anydim as ad; g = ad.Builder(); d = g.dim('d', 0, 9)\n"
        "x = g.input('x', ad.float32, (g.dim('n', 0, 9), d))\n"
        "s = g.softmax(g.matmul(x, g.transpose(x, perm=(1, 0))), axis=-1)\n"
        "g.output('y', g.matmul(s, x)); ad.compile(g)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_rule_says_nothing_of_plain_models() -> None:
    graph = ad.Builder("plain")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 64), 8))
    graph.output("y", graph.relu(graph.add(x, x)))
    program = ad.compile(graph).program
    (segment,) = program.segments
    for number, site in enumerate(segment.sites):
        assert not any(rule(Launched(program, segment, number, site, "")) for rule in RULES)
