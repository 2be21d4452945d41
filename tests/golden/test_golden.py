"""Promise: a change of form changes no kernel and no bit of a result.

`python -m tests.golden` says in words what changed; with `--write` it keeps it.
"""

from __future__ import annotations

import pytest

import anydim as ad
from anydim.base import settings
from tests.golden.files import CASES, IN_C, SHOWN, c_text, read_corpus, read_text, stages_text
from tests.golden.lowered import lines, lowered
from tests.golden.record import differences, fixed_machine, kept, outputs, why_not
from tests.kernel_targets import has_compiler, needs_compiler
from tests.tile_emulator import Emulator
from tests.tile_emulator import tiles as tiles

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
COMPILED = [name for name, case in CASES.items() if not case.on_tiles]
"""Programs whose kernels are machine code; the evaluator of loop IR runs the others."""
MEANT = "if this is meant: python -m tests.golden --write"


def test_the_corpus_holds_every_program() -> None:
    assert set(read_corpus()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_kernels_and_results_are_as_they_were(name: str) -> None:
    lines = differences(name, read_corpus()[name], kept(CASES[name]))
    assert not lines, "\n".join([*lines, MEANT])


@pytest.mark.parametrize("name", SHOWN)
def test_the_texts_of_all_stages_are_as_they_were(name: str) -> None:
    assert stages_text(name) == read_text(name), MEANT


@pytest.mark.parametrize("name", IN_C)
def test_the_c_text_of_kernels_is_as_it_was(name: str) -> None:
    assert c_text(name) == read_text(name, "c"), MEANT


@needs_compiler
@pytest.mark.parametrize("name", ["dense_gelu", "branching"])
def test_c_gives_the_same_results_at_once(name: str) -> None:
    """Two of those that all run below."""
    assert not differences(name, read_corpus()[name], kept(CASES[name], target="c"))


def test_differences_are_told_in_words() -> None:
    before = {"kernels": {"a_1": "x", "b_1": "y", "c": "z"}, "outputs": {"n=0": "u", "n=1": "v"}}
    now = {"kernels": {"a_2": "x", "b_2": "w", "c": "t"}, "outputs": {"n=0": "u", "n=1": "q"}}
    assert differences("p", before, now) == [
        "p: kernel a_1 is called a_2, its text is the same",
        "p: kernel b_1 is gone, or its text changed",
        "p: kernel b_2 is new",
        "p: the text of kernel c changed, its name did not",
        "p: bits of the results at n=1 changed",
    ]


def test_programs_lower_to_the_kernels_that_are_compiled() -> None:
    """`python -m tests.golden.lowered` compares trees without compiling."""
    with fixed_machine():
        found = lines(lowered(CASES["dense_gelu"].source(), CASES["dense_gelu"].dims))
    assert {line.split()[-1] for line in found} == {
        *read_corpus()["dense_gelu"]["kernels"].values()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_code_for_a_plain_processor_gives_the_same_results(name: str) -> None:
    """Compiled for AVX2 and FMA alone, whatever this processor has."""
    assert not differences(name, read_corpus()[name], kept(CASES[name], processor="x86-64-v3"))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_two_threads_give_the_same_results(name: str) -> None:
    """Kernels may be others: steps over time go stage by stage then."""
    found = differences(name, read_corpus()[name], kept(CASES[name], threads=2))
    assert not [line for line in found if "results at" in line]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "zig"])
@pytest.mark.parametrize("name", COMPILED)
def test_c_gives_the_same_results(name: str, compiler: str) -> None:
    """Kernels and host as C, compiled by a C compiler, bit by bit what LLVM's code gives."""
    if not has_compiler(compiler):
        pytest.skip(f"no {compiler}")
    with settings.override(c_compiler=compiler):
        assert not differences(name, read_corpus()[name], kept(CASES[name], target="c"))


@pytest.mark.parametrize("name", [name for name in CASES if name not in COMPILED])
def test_machine_code_for_tiles_gives_the_same_results(name: str, tiles: Emulator) -> None:
    """The same kernels as machine code, on a processor with tiles or an emulated one."""
    case = CASES[name]
    with settings.override(winograd=True, keep_programs=False):
        model = ad.compile(
            case.source(), dims=case.dims, threads=1, precision=case.precision, ragged=case.ragged
        )
    assert outputs(case, model) == read_corpus()[name]["outputs"]
