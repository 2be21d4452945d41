"""`precision="auto"`: the fastest precision whose error on the user's inputs is tolerated.

Every rung is compiled and called with the same inputs. Its error is the largest difference of a
result from the graph in float64, over the largest magnitude of that result. Where a faster rung
fails, `precision_nodes.py` looks for the nodes that need more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from statistics import median
from sys import float_info
from typing import TYPE_CHECKING, Any

import numpy

from anydim.api.precision_nodes import ALL, NodeSearch, product_nodes
from anydim.base import log, settings
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import table
from anydim.base.user_values import ABOVE_ZERO, number_within, short_repr
from anydim.compiler.passes.options import BFLOAT16, BFLOAT16_PARTS, EXACT, FAST, INT8
from anydim.compiler.targets.targets import target

if TYPE_CHECKING:
    from anydim.api.compile_options import Options
    from anydim.api.model import Model

TOLERANCE = 1e-3
_ROUNDS, _SECONDS = 9, 0.03  # of the times of a rung at one call
_MARGIN = 0.95  # a later rung is faster if it takes less of an earlier one's time: above noise

Compile = Callable[[Any, Any], "Model"]
Call = Mapping[str, Any]


@dataclass(frozen=True)
class Rung:
    """A precision with its largest error and its time per call, in seconds.

    `nodes` are patterns of nodes with a precision of their own.
    """

    precision: str
    error: float
    seconds: float
    nodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def given(self) -> str | dict[str, str]:
        """The value of `precision=` that compiles it."""
        return {**self.nodes, ALL: self.precision} if self.nodes else self.precision

    @property
    def name(self) -> str:
        """A name in tables, and of its model."""
        if not self.nodes:
            return self.precision
        return f"{self.precision}, {len(self.nodes)} {'/'.join(sorted({*self.nodes.values()}))}"


@dataclass(frozen=True)
class PrecisionReport:
    """The rungs that were measured; `chosen` is the fastest that keeps the tolerance, if any."""

    rungs: tuple[Rung, ...]
    tolerance: float
    models: Mapping[str, Model] = field(default_factory=dict, repr=False, compare=False)

    @property
    def choice(self) -> Rung | None:
        """The fastest rung that keeps the tolerance, by a margin above noise."""
        found: Rung | None = None
        for rung in self.rungs:
            faster = found is None or rung.seconds < _MARGIN * found.seconds
            if rung.error <= self.tolerance and faster:
                found = rung
        return found

    @property
    def chosen(self) -> str | dict[str, str] | None:
        """The precision to use; None if no rung keeps the tolerance."""
        return None if self.choice is None else self.choice.given

    def __str__(self) -> str:
        whole, choice = self.rungs[0].seconds, self.choice
        rows = []
        for rung in self.rungs:
            state = "" if rung.error <= self.tolerance else "above the tolerance"
            time_ = f"{rung.seconds / whole:.2f}" if whole else "-"
            rows.append((
                rung.name, f"{rung.error:.1e}", f"{rung.seconds * 1e3:.3f}", time_,
                "chosen" if rung is choice else state,
            ))  # fmt: skip
        shown = table(("precision", "error", "ms", "of exact", ""), rows)
        lines = [f"{shown}\ntolerance {self.tolerance:g}"]
        for rung in (each for each in self.rungs if each.nodes):
            nodes = table(("node", "precision"), list(rung.nodes.items()))
            lines.append(f"nodes of {rung.name}\n{nodes}")
        return "\n".join(lines)


def measure_rungs(
    compile_: Compile, source: Any, calls: Any, tolerance: float | None = None
) -> PrecisionReport:
    """Compile a source in every precision, and measure errors and times on the calls.

    Args:
        compile_: Compiles a source in a precision.
        source: As for `anydim.compile`.
        calls: The inputs of a call by name, or several such mappings.
        tolerance: The largest error of the report's choice; None: 1e-3.

    Raises:
        OptionError: There are no calls, or the tolerance is no positive number.
        InputError: The model does not take the inputs.
    """
    limit, given = known_tolerance(tolerance), known_calls(calls)
    models = {precision: compile_(source, precision) for precision in _rungs()}
    exact = models[EXACT]
    if exact._conversion.packing is not None or exact._conversion.forests is not None:
        raise OptionError(
            f"{exact.name} takes lists of rows, and precisions are compared on arrays",
            "choose with the model compiled without ragged, then name the precision",
        )
    wanted = [exact._compiled.reference(call) for call in given]

    def error_of(model: Model) -> float:
        found = (largest_difference(model._results(c), w) for c, w in zip(given, wanted))
        return max(found)

    errors = [error_of(model) for model in models.values()]
    seconds = _times(list(models.values()), given)
    rungs = [Rung(*each) for each in zip(models, errors, seconds)]
    report = PrecisionReport(tuple(rungs), limit, models)
    mixed = [
        (rung, nodes, made)
        for rung in rungs if rung.error > limit and _is_faster(rung, report.choice)
        for nodes, made in _with_nodes(compile_, source, exact, rung, report, error_of)
    ]  # fmt: skip
    if not mixed:
        return report
    made, whole = [model for *_, model in mixed], len(models)
    seconds = _times([*models.values(), *made], given)
    rungs = [Rung(*each) for each in zip(models, errors, seconds)]
    for (rung, nodes, model), each in zip(mixed, seconds[whole:]):
        rungs.append(Rung(rung.precision, error_of(model), each, nodes))
        models[rungs[-1].name] = model
    return PrecisionReport(tuple(rungs), limit, models)


def _rungs() -> tuple[str, ...]:
    """The precisions to compare: with tiles, also those in parts of bfloat16."""
    parts = BFLOAT16_PARTS if target(settings.target).machine.pair_tiles else {}
    return (EXACT, FAST, *(name for name, count in parts.items() if count > 1), BFLOAT16, INT8)


def _is_faster(rung: Rung, other: Rung | None) -> bool:
    """Whether a rung is clearly faster than the choice."""
    return other is not None and rung.seconds < _MARGIN * other.seconds


def _with_nodes(
    compile_: Compile, source: Any, exact: Model, rung: Rung, report: PrecisionReport,
    error_of: Callable[[Model], float],
) -> Iterator[tuple[Mapping[str, str], Model]]:  # fmt: skip
    """The nodes that need the precision of the choice, and the model with them, if found."""
    assert report.choice is not None
    search = NodeSearch(
        lambda precision: compile_(source, precision), error_of, rung.precision,
        report.choice.precision, report.tolerance,
    )  # fmt: skip
    found = search.run(product_nodes(exact.graph))
    if found is not None:
        yield found


def compile_chosen(compile_: Compile, source: Any, options: Options) -> Model:
    """The model in the fastest precision that keeps the tolerance; logs the table.

    Raises:
        OptionError: No precision keeps the tolerance, or an argument is invalid.
    """
    if options.inputs is None:
        raise OptionError(
            "precision='auto' needs inputs to measure errors on",
            "give inputs={name: array}, or a list of such calls",
        )
    report = measure_rungs(compile_, source, options.inputs, options.tolerance)
    log.info("precision\n%s", report)
    if report.choice is None:
        least = min(rung.error for rung in report.rungs)
        raise OptionError(
            f"no precision keeps tolerance={report.tolerance:g}: the least error is {least:.1e}",
            "raise the tolerance, or name a precision",
        )
    return report.models[report.choice.name]


def largest_difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest difference of a result, over its largest magnitude; NaN equals NaN.

    Of integers and bools, 1 if any differs.
    """
    worst = 0.0
    for name, array in found.items():
        a, b = (numpy.asarray(each) for each in (array, wanted[name]))
        if not a.size or a.dtype.kind not in "fiubV":
            continue
        if a.dtype.kind in "iub":
            worst = max(worst, float((a != b).any()))
            continue
        a, b = a.astype(numpy.float64), b.astype(numpy.float64)
        with numpy.errstate(all="ignore"):
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            error = numpy.where(same, 0.0, abs(a - b))
        scale = abs(b[numpy.isfinite(b)]).max(initial=0.0)
        most = float(numpy.where(numpy.isnan(error), numpy.inf, error).max())
        worst = max(worst, most / scale if scale else most)
    return worst


def known_tolerance(given: Any) -> float:
    """Validate a tolerance; raises OptionError."""
    if given is None:
        return TOLERANCE
    return number_within("tolerance", given, ABOVE_ZERO, float_info.max,
                         "give a number above 0, such as 1e-3")  # fmt: skip


def known_calls(given: Any) -> Sequence[Call]:
    """Validate the inputs of calls; raises OptionError."""
    calls = [given] if isinstance(given, Mapping) else given
    if not isinstance(calls, (list, tuple)) or not all(isinstance(c, Mapping) for c in calls):
        raise OptionError(
            f"inputs is {short_repr(given)}, expected a mapping from names to arrays",
            "or a list of them, one for each call",
        )
    if not calls:
        raise OptionError("inputs has no call", "give the inputs of one or more calls")
    return calls


def _times(models: Sequence[Model], calls: Sequence[Call]) -> list[float]:
    """Seconds of all calls: the first model's median, times medians of ratios to it.

    Models take turns, in another order each round: ratios of neighbours survive changes of load.
    """
    found: list[list[float]] = [[] for _ in models]
    for round_ in range(_ROUNDS):
        for model, times in _rotate(list(zip(models, found)), round_):
            begun, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begun) < _SECONDS or not count:
                for call in calls:
                    model._results(call)
                count += 1
            times.append(spent / count)
    first = found[0]
    return [median(first) * median(b / a for a, b in zip(first, each)) for each in found]


def _rotate(items: list[Any], by: int) -> list[Any]:
    by %= len(items)
    return items[by:] + items[:by]
