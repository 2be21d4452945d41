"""The check itself: calls at many sizes, each compared with the first oracle that answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from time import monotonic
from typing import Any

import numpy

from anydim.base.dtypes import convert_array
from anydim.base.errors import DeviceError, InputError, MemoryLimitError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.compiler.checking.choice import Oracles
from anydim.compiler.checking.compare import FACTOR, Difference, Noise, judged
from anydim.compiler.checking.inputs import drawn, flavours
from anydim.compiler.checking.oracle import Answer, Arrays, Function, NoAnswer, Oracle, first_line
from anydim.compiler.checking.report import CheckReport, Failure, at_sizes
from anydim.compiler.checking.sizes import Sample, samples
from anydim.runtime.program.inputs import Ranges
from anydim.runtime.program.program import Program
from anydim.runtime.signature import TensorSpec

Progress = Callable[[int, int], None]
_REFUSALS = (InputError, DeviceError, MemoryLimitError)  # permitted refusals of a call


@dataclass(frozen=True)
class Subject:
    """The program under check, and how to call it.

    `exact` and `plain` evaluate its graph in float64 and in its own types, if there is a graph.
    Errors of up to `factor` times that of `plain` are permitted.
    `tame`: integers that are not indices stay small, since they may determine trip counts.
    """

    program: Program
    call: Function
    exact: Function | None = None
    plain: Function | None = None
    ranges: Ranges = field(default_factory=dict)
    tame: bool = False
    factor: int = FACTOR


def check(
    subject: Subject, oracles: Oracles, count: int = 100, seed: int = 0,
    progress: Progress | None = None, seconds: float | None = None,
) -> CheckReport:  # fmt: skip
    """Compare a program with oracles in `count` calls; a time limit in `seconds` ends it early.

    The program has to reject inputs that an oracle rejects as bad, and vice versa.
    """
    state = _State(subject, oracles, seed)
    begun = monotonic()
    for number, sample in enumerate(samples(subject.program, oracles.ordered[0], count, seed)):
        if seconds is not None and monotonic() - begun > seconds:
            state.stopped = seconds
            break
        state.take(number, sample)
        if progress is not None:
            progress(number + 1, count)
    return state.report()


@dataclass
class _State:
    """The results so far."""

    subject: Subject
    oracles: Oracles
    seed: int
    answers_by_title: Counter[str] = field(default_factory=Counter)
    notes: dict[str, str] = field(default_factory=dict)
    seen: dict[tuple[int, ...], Sample] = field(default_factory=dict)
    values: dict[str, set[Any]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    disputes: dict[str, None] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)
    worst: Difference = Difference(0.0)
    worst_output: str = ""
    worst_sizes: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0
    rejected: int = 0
    why_rejected: str = ""
    reduced: int = 0
    empty: int = 0
    stopped: float | None = None
    judges: tuple[Oracle, ...] | None = None

    def take(self, number: int, sample: Sample) -> None:
        """Make one call, with inputs that the model accepts if possible."""
        chance = numpy.random.default_rng((self.seed, number))
        refusal: UserError | None = None
        inputs: Arrays = {}
        for flavour in flavours(number, self.subject.tame):
            inputs = self._inputs(sample, chance, flavour)
            try:
                results = self.subject.call(inputs)
            except _REFUSALS as error:
                refusal = refusal or error
            else:
                self._answered(inputs, results, sample)
                return
        assert refusal is not None
        self._refused(inputs, refusal, sample)

    def _inputs(self, sample: Sample, chance: Any, flavour: Any) -> Arrays:
        specs, ranges = self.subject.program.signature.inputs, self.subject.ranges
        return {spec.name: drawn(spec, sample.sizes, chance, flavour, ranges) for spec in specs}

    def _answers(self, inputs: Arrays) -> tuple[Oracle, Mapping[str, Answer]] | None:
        """The first oracle that answers, with its answers; None if none does."""
        why = ""
        for oracle in self.oracles.ordered:
            try:
                return oracle, oracle.answer(inputs)
            except NoAnswer as reason:
                why = why or f"{oracle.title}: {reason}"
        self.unanswered[why] += 1
        return None

    # ---- rejected calls -----------------------------------------------------------------------

    def _refused(self, inputs: Arrays, refusal: UserError, sample: Sample) -> None:
        """A rejection is correct if an oracle or the graph rejects the inputs, too."""
        for answer in (self.subject.exact, self._first):
            if answer is None:
                continue
            try:
                answer(inputs)
            except (*_REFUSALS, NoAnswer, ArithmeticError, ValueError):
                self.rejected += 1
                self.why_rejected = self.why_rejected or first_line(refusal)
                return
        reason = f"the model rejects it, the oracle does not: {first_line(refusal)}"
        self.failures.append(Failure(sample.sizes, "", reason))

    def _first(self, inputs: Arrays) -> Any:
        return self.oracles.ordered[0].answer(inputs)

    # ---- calls with results --------------------------------------------------------------------

    def _answered(self, inputs: Arrays, results: Arrays, sample: Sample) -> None:
        try:
            found = self._answers(inputs)
        except _REFUSALS as refusal:
            text = f"the oracle rejects it, the model does not: {first_line(refusal)}"
            self.failures.append(Failure(sample.sizes, "", text))
            return
        if found is None:
            return
        oracle, answers = found
        self.answers_by_title[oracle.title] += 1
        self.notes[oracle.title] = oracle.note
        self.samples += 1
        self.reduced += sample.reduced
        self.seen.setdefault(tuple(sample.sizes.values()), sample)
        self._compare(oracle, answers, inputs, results, sample)

    def _compare(
        self, oracle: Oracle, answers: Mapping[str, Answer], inputs: Arrays, results: Arrays,
        sample: Sample,
    ) -> None:  # fmt: skip
        noise = partial(self._noise, inputs, {})
        some = False
        for spec in self.subject.program.signature.outputs:
            result = results[spec.key]
            wanted = answers.get(spec.key) or answers.get(spec.name)
            if wanted is None:
                hint = "compare with the file that the model was compiled from"
                raise OptionError(f"{oracle.title} has no result '{spec.key}'", hint)
            self.types[spec.key] = spec.dtype.name
            some |= self._record_values(spec.key, wanted.values)
            difference = judged(spec, result, wanted, noise, self.subject.factor)
            if difference.reason and self._disputed(
                oracle, spec, inputs, result, difference, sample
            ):
                continue
            if difference.reason:
                self.failures.append(Failure(sample.sizes, spec.key, difference.reason))
            if difference.error >= self.worst.error:
                self.worst, self.worst_output = difference, spec.key
                self.worst_sizes = sample.sizes
        self.empty += not some

    def _noise(self, inputs: Arrays, made: dict[str, Noise]) -> Noise:
        """The rounding error at these inputs, computed once."""
        if not made:
            made["noise"] = Noise(self.subject.exact, self.subject.plain, inputs)
        return made["noise"]

    def _record_values(self, name: str, values: numpy.ndarray) -> bool:
        """Whether a result has elements; records up to two different values."""
        known = self.values.setdefault(name, set())
        if len(known) < 2:
            known.update(
                numpy.unique(convert_array(values, numpy.dtype(numpy.float64)))[:2].tolist()
            )
        return bool(values.size)

    def _disputed(
        self, oracle: Oracle, spec: TensorSpec, inputs: Arrays, result: numpy.ndarray,
        difference: Difference, sample: Sample,
    ) -> bool:  # fmt: skip
        """Whether another independent oracle agrees with the model."""
        if self.judges is None:
            self.judges = self.oracles.judges()
        for judge in self.judges:
            try:
                other = judge.answer(inputs)[spec.key]
            except (NoAnswer, UserError, KeyError):
                continue
            noise = partial(self._noise, inputs, {})
            if not judged(spec, result, other, noise, self.subject.factor).reason:
                text = f"{oracle.title} has another result ({difference.reason})"
                where = f"'{spec.key}'{at_sizes(sample.sizes)}"
                self.disputes[f"{where}: {text}, and {judge.title}, has the model's"] = None
                return True
        return False

    def report(self) -> CheckReport:
        """The report of the results."""
        seen, takes = self.seen.values(), self.subject.program.signature.inputs
        constant = [name for name, values in self.values.items() if takes and len(values) < 2]
        why = "; ".join(reason for reason, _ in self.unanswered.most_common(2))
        return CheckReport(
            self.samples, self.rejected, self.worst.error, self.worst_sizes,
            tuple(self.failures), self.worst.plain, self.worst_output, len(seen),
            sum(sample.corner for sample in seen), self.reduced, self.empty,
            tuple(constant),
            self.types, dict(self.answers_by_title), self.notes, self._why(),
            sum(self.unanswered.values()), why, tuple(self.disputes), self.seed, self.stopped,
            self.why_rejected, self.subject.factor,
        )  # fmt: skip

    def _why(self) -> str:
        """The reason for the lack of an independent oracle; '' if there is one."""
        if any(oracle.independent for oracle in self.oracles.ordered):
            return ""
        return "; ".join(dict.fromkeys(self.oracles.refused.values()))
