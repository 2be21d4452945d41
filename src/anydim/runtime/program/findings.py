"""Findings: parts of a program that are far from the machine's peak; `explain` and the log list
them.

A row of `RULES` is a kind of finding. It inspects launches, recipes and schedules, so it works on
loaded programs as well. docs/guides/troubleshooting.md explains each finding and its remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.runtime.program.program import Constant, Program
from anydim.runtime.program.region import FindStep
from anydim.runtime.program.region_plan import values_at
from anydim.runtime.program.segment import Segment, Site
from anydim.sizes import Box

MATTERS = 1 << 16  # minimum bytes of a constant
_SHARE = 0.02  # minimum share of all work
_USUAL = 64  # assumed size of a dim without upper bound
_DENSE = 12  # operations per byte: only code that reads its operands repeatedly reaches it
_UNTILED = ("rows", "pointwise", "loop_nest")
_PRODUCTS = ("contraction", "int8", "weight_only_quant", "chosen_matrices")  # templates
_HEAVY = 0.5  # share of weights in the bytes of a product: fewer of them cost less than other rows


@dataclass(frozen=True)
class Launched:
    """A launch with its segment and the text of its recipe."""

    program: Program
    segment: Segment
    number: int
    site: Site
    text: str

    @property
    def operands(self) -> tuple[str, ...]:
        """Its inputs, then its outputs."""
        buffers = self.segment.buffer
        return tuple(name for name in self.site.operands if buffers[name].kind != "status")

    @property
    def kind(self) -> str:
        """The template of its kernel, or ''."""
        return self.site.schedule.partition("(")[0].partition(":")[0].strip()

    def constants(self) -> Iterator[Constant]:
        """Yield constants that it reads unpacked."""
        known = {constant.name: constant for constant in self.program.constants}
        yield from (known[name] for name in self.site.operands if name in known)


Rule = Callable[[Launched], str]


def findings(program: Program) -> tuple[str, ...]:
    """Return a line per finding; equal ones once, with all their launches."""
    found: dict[str, list[str]] = {}
    for launched in _worth_it(program):
        for rule in RULES:
            text = rule(launched)
            if text:
                source = launched.site.source.partition(": ")[2] or launched.site.source
                found.setdefault(text, []).append(source or launched.site.kernel)
    return tuple(f"{_places(sources)}: {text}" for text, sources in found.items())


def _places(sources: list[str]) -> str:
    first = sources[0].split(" + ")[0]
    return f"{first} and {len(sources) - 1} more" if len(sources) > 1 else first


def works(program: Program) -> list[float]:
    """Return operations plus bytes of each launch at representative sizes, in program order."""
    return [sum(_work(each)) for each in _launches(program)]


def _launches(program: Program) -> list[Launched]:
    return [
        Launched(
            program, segment, number, site,
            "" if site.recipe is None else program.recipes[site.recipe].work,
        )
        for segment in program.segments
        for number, site in enumerate(segment.sites)
    ]  # fmt: skip


def _worth_it(program: Program) -> Iterator[Launched]:
    """Yield the launches with a relevant share of all work at representative sizes."""
    every = _launches(program)
    work = [sum(_work(each)) for each in every]
    least = _SHARE * sum(work) / max(1.0, len(every) ** 0.5)
    yield from (each for each, own in zip(every, work) if own >= least)


def _work(launched: Launched) -> tuple[float, float]:
    """Return operations and bytes of a launch at representative sizes."""
    try:
        values = _usual_sizes(launched.segment.signature.box)
        flops, moved = launched.site.flops, launched.site.moved
        return max(0.0, flops.evaluate(values)), max(0.0, moved.evaluate(values))
    except (AnydimError, ArithmeticError):  # a division by a size of 0
        return 0.0, 0.0


@lru_cache(maxsize=64)
def _usual_sizes(box: Box) -> Mapping[str, int]:
    """Representative sizes of a box."""
    sizes = {dim.name: max(dim.lo, min(_USUAL, dim.hi or _USUAL)) for dim in box.dims}
    return values_at(box, sizes)[0]


# ---- rules -------------------------------------------------------------------------------------


def find_unpacked(launched: Launched) -> str:
    """A product that reads a large constant unpacked."""
    large = [c for c in launched.constants() if len(c.shape) > 1 and c.bytes >= MATTERS]
    if not large or "packed=false" not in launched.site.schedule:
        return ""
    return "a constant of the product is not packed, so it is copied into panels in every call"


def made_of_constants(launched: Launched) -> str:
    """A value that depends on constants only is computed in every call."""
    operands = launched.operands[:-1]
    large = any(constant.bytes >= MATTERS for constant in launched.constants())
    if large and all(launched.segment.buffer[name].kind == "constant" for name in operands):
        return "it reads constants alone, and is computed in every call"
    return ""


def written_scores(launched: Launched) -> str:
    """A softmax between two products whose score matrix goes through memory."""
    if launched.kind != "rows" or "exp(" not in launched.text or "max=!" not in launched.text:
        return ""
    sites, number = launched.segment.sites, launched.number
    before = {site.operands[-1] for site in sites[:number] if _is_product(site)}
    after = {name for site in sites[number + 1 :] if _is_product(site) for name in site.operands}
    if before.intersection(launched.operands[:-1]) and launched.operands[-1] in after:
        return "attention is not fused: the matrix of scores is written and read again"
    return ""


def _is_product(site: Site) -> bool:
    return site.schedule.startswith("contraction(")


def find_untiled(launched: Launched) -> str:
    """Reductions that read their operands many times, in a kernel without register tiles."""
    if launched.kind not in _UNTILED or "=! " not in launched.text:
        return ""
    flops, moved = _work(launched)
    if flops < _DENSE * moved or not moved:
        return ""
    return f"no kernel for products takes it: a kernel of last resort ({launched.kind}) does"


def read_by_each_row(launched: Launched) -> str:
    """A product in a loop over the rows of a ragged batch that reads little beside its weights."""
    if launched.kind not in _PRODUCTS or not _is_of_one_row(launched):
        return ""
    sizes = _usual_sizes(launched.segment.signature.box)
    buffers = [launched.segment.buffer[name] for name in dict.fromkeys(launched.operands)]
    weights = sum(each.bytes.evaluate(sizes) for each in buffers if each.kind == "constant")
    if weights < max(MATTERS, _HEAVY * _work(launched)[1]):
        return ""
    return "each row of a ragged batch reads its weights anew: it runs in a loop over rows"


def _is_of_one_row(launched: Launched) -> bool:
    """Whether a launch runs once for each row of a ragged batch: its sizes are those of a row."""
    for region in launched.program.regions:
        if any(step.segment is launched.segment for step in region.segments):
            return any(isinstance(s, FindStep) and s.row is not None for s in region.steps)
    return False


RULES: tuple[Rule, ...] = (
    find_unpacked, made_of_constants, written_scores, find_untiled, read_by_each_row,
)  # fmt: skip
