"""`precision="auto"`: the fastest precision whose error on the user's inputs is tolerated.

Every rung is compiled and called with the same inputs. Its error is the largest difference of a
result from the graph in float64, over the largest magnitude of that result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base import log
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import table
from anydim.base.user_values import short_repr
from anydim.compiler.passes.options import BFLOAT16, EXACT, FAST, INT8

if TYPE_CHECKING:
    from anydim.api.compile_options import Options
    from anydim.api.model import Model

RUNGS = (EXACT, FAST, BFLOAT16, INT8)
TOLERANCE = 1e-3
_ROUNDS, _SECONDS = 5, 0.05  # of the times of a rung at one call
_SAME = 0.98  # a later rung is faster if it takes less of an earlier one's time

Compile = Callable[[Any, str], "Model"]
Call = Mapping[str, Any]


@dataclass(frozen=True)
class Rung:
    """A precision with its largest error and its time per call, in seconds."""

    precision: str
    error: float
    seconds: float


@dataclass(frozen=True)
class PrecisionReport:
    """The rungs that were measured; `chosen` is the fastest that keeps the tolerance, if any."""

    rungs: tuple[Rung, ...]
    tolerance: float
    models: Mapping[str, Model] = field(default_factory=dict, repr=False, compare=False)

    @property
    def chosen(self) -> str | None:
        """The precision to use; None if no rung keeps the tolerance."""
        found: Rung | None = None
        for rung in self.rungs:
            faster = found is None or rung.seconds < _SAME * found.seconds
            if rung.error <= self.tolerance and faster:
                found = rung
        return None if found is None else found.precision

    def __str__(self) -> str:
        whole = self.rungs[0].seconds
        rows = []
        for rung in self.rungs:
            state = "" if rung.error <= self.tolerance else "above the tolerance"
            time_ = f"{rung.seconds / whole:.2f}" if whole else "-"
            rows.append((
                rung.precision, f"{rung.error:.1e}", f"{rung.seconds * 1e3:.3f}", time_,
                "chosen" if rung.precision == self.chosen else state,
            ))  # fmt: skip
        shown = table(("precision", "error", "ms", "of exact", ""), rows)
        return f"{shown}\ntolerance {self.tolerance:g}"


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
    models = {precision: compile_(source, precision) for precision in RUNGS}
    exact = models[EXACT]
    if exact._conversion.packing is not None or exact._conversion.forests is not None:
        raise OptionError(
            f"{exact.name} takes lists of rows, and precisions are compared on arrays",
            "choose with the model compiled without ragged, then name the precision",
        )
    errors = dict.fromkeys(RUNGS, 0.0)
    for call in given:
        results = {name: model._results(call) for name, model in models.items()}
        wanted = exact._compiled.reference(call)
        for name, found in results.items():
            errors[name] = max(errors[name], largest_difference(found, wanted))
    seconds = _times(list(models.values()), given)
    rungs = (Rung(name, errors[name], each) for name, each in zip(RUNGS, seconds))
    return PrecisionReport(tuple(rungs), limit, models)


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
    if report.chosen is None:
        least = min(rung.error for rung in report.rungs)
        raise OptionError(
            f"no precision keeps tolerance={report.tolerance:g}: the least error is {least:.1e}",
            "raise the tolerance, or name a precision",
        )
    return report.models[report.chosen]


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
    number = isinstance(given, (int, float, numpy.number)) and not isinstance(given, bool)
    if not number or not 0 < float(given) < float("inf"):
        raise OptionError(
            f"tolerance is {short_repr(given)}, expected a number above 0", "such as 1e-3"
        )
    return float(given)


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
    """Median seconds of all calls, measured alternately."""
    found: list[list[float]] = [[] for _ in models]
    for _ in range(_ROUNDS):
        for model, times in zip(models, found):
            begun, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begun) < _SECONDS or not count:
                for call in calls:
                    model._results(call)
                count += 1
            times.append(spent / count)
    return [median(times) for times in found]
