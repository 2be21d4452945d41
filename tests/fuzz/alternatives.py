"""Laws of the other ways to compile, keep and run a graph, beside its generic code.

strategies  `exact`, `adaptive`, `buckets`, `where` and `pad` give the bits of generic code (`pad`
            those near them, where products have addends), and all their variants compile
saved       a saved model, loaded again, gives the bits of the model, its formula of memory and
            its refusals
browsers    a model exported for browsers has the same bits on 1, 2 and 3 threads, in node
rungs       a row has the same bits in each half of a batch at every precision, and results of
            precisions whose factors are not rounded are near the exact ones
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import anydim as ad
from anydim.base import settings
from anydim.base.errors import DimError, OptionError
from anydim.compiler.variants import serving
from anydim.compiler.variants.workers import Order, Reply
from tests.fuzz.case import Arrays, Case
from tests.fuzz.judge import Expected, Failure, eager_launches, said
from tests.fuzz.metamorphic import Found, Subject, differing, halves, row_case
from tests.fuzz.points import shown
from tests.fuzz.runner import Outcome, run_judged
from tests.unit.compiler.variants.models import Here
from tests.unit.deploy.web.node import NODE, answers, call_of, has_linker, outputs

_PRODUCTS = {"matmul", "gemm", "einsum", "conv", "lstm", "gru", "rnn", "attention"}
_AGAIN = 3  # calls of a size, until it has a variant
RUNGS = ("fast", "bfloat16", "int8")


class _Compilers(Here):
    """Compiles variants in this process; `bugs` are those that its replies name."""

    def __init__(self) -> None:
        super().__init__()
        self.bugs: list[str] = []

    def submit(self, order: Order) -> Future[Reply]:
        reply = super().submit(order)
        self.bugs += [reply.result().bug] if reply.result().bug else []
        return reply


def strategies(subject: Subject) -> Found:
    """One strategy of each kind, with sizes drawn by the seed of the case."""
    compilers = _Compilers()
    for text in _texts(subject):
        with mock.patch.object(serving, "workers", lambda polite, count=0: compilers):
            model = ad.compile(subject.case.graph, threads=subject.case.threads, strategy=text)
            for sizes, inputs, results in subject.calls:
                for _ in range(_AGAIN if text.startswith("adaptive") else 1):
                    reason = _reason(subject, text, model(**inputs), results, inputs)
                    reason = reason or "".join(compilers.bugs[:1])
                    yield reason and f"{text}: {reason}", sizes


def _texts(subject: Subject) -> Iterator[str]:
    numbers = Random(subject.case.seed)
    yield from ("exact(limit=1)", "exact(limit=8)", "adaptive(limit=2, after=1, most=1.0)")
    if held := _ranges(subject, numbers):
        yield f"buckets({', '.join(held)})"
    for dim in shown(subject.case.graph)[:1]:
        yield f"where('{dim.name} <= {numbers.randint(0, 9)}', exact(limit=2))"
        padded = numbers.choice(["8", "16", '"pow2"'])
        yield f"pad({dim.name}={padded})"


def _ranges(subject: Subject, numbers: Random) -> list[str]:
    """Buckets of up to two dims, at sizes of calls and between them."""
    found = []
    for dim in shown(subject.case.graph)[:2]:
        called = {sizes[dim.name] for sizes, _, _ in subject.calls if sizes.get(dim.name)}
        most = 40 if dim.hi is None else dim.hi
        ends = sorted(end for end in called | {16} if max(dim.lo, 1) <= end <= most)
        if ends and numbers.random() < 0.8:
            found.append(f"{dim.name}={numbers.choice((ends[:3], [[ends[0], ends[-1]]]))}")
    return found


def _reason(subject: Subject, text: str, came: Arrays, results: Arrays, inputs: Arrays) -> str:
    if not text.startswith("pad") or not _PRODUCTS & {n.operator for n in subject.case.graph.nodes}:
        return differing(came, results)
    if subject.case.specials:
        return ""
    return Expected.of(subject.case.graph, inputs).difference(came)


def saved(subject: Subject) -> Found:
    with TemporaryDirectory() as folder:
        path = f"{folder}/model.anydim"
        subject.model.save(path)
        other = ad.load(path)
    if str(other.memory) != str(subject.model.memory):
        yield f"memory is {other.memory}, not {subject.model.memory}", {}
    for sizes, inputs, results in subject.calls:
        yield differing(other(**inputs), results), sizes
    for sizes, inputs in _refused(subject):
        try:
            other(**inputs)
        except DimError:
            continue
        yield "the loaded model takes sizes that the model refuses", sizes


def _refused(subject: Subject) -> Iterator[tuple[Mapping[str, int], dict]]:
    for sizes in subject.case.points:
        inputs = subject.case.inputs(sizes)
        try:
            if inputs is not None:
                subject.model(**inputs)
        except DimError:
            yield sizes, inputs


def browsers(subject: Subject) -> Found:
    """With all launches parallel; without node or the linker, nothing."""
    calls = [call_of(inputs) for _, inputs, _ in subject.calls]
    if NODE is None or not has_linker() or not calls:
        return
    with TemporaryDirectory() as folder:
        try:
            with eager_launches():
                subject.model.export(folder, target="wasm32")
        except OptionError:  # a dim that no input determines
            return
        alone, *others = (answers(Path(folder), calls, threads=count) for count in (1, 2, 3))
    for count, found in enumerate(others, 2):
        for (sizes, _, _), one, several in zip(subject.calls, alone, found, strict=True):
            if "error" in one or "error" in several:
                reason = "" if one == several else f"{several}, not {one}"
            else:
                model = subject.model
                reason = differing(outputs(model, several), outputs(model, one))
            yield reason and f"{count} threads: {reason}", sizes


def rungs(subject: Subject) -> Found:
    for rung in RUNGS:
        model = ad.compile(subject.case.graph, threads=subject.case.threads, precision=rung)
        other = Subject(subject.case, model)
        for reason, sizes in halves(other):
            yield reason and f"{rung}: {reason}", sizes
        for sizes, inputs, results in other.calls if rung == "fast" else ():
            if not subject.case.specials:
                reason = Expected.of(subject.case.graph, inputs).difference(results)
                yield reason and f"{rung}: {reason}", sizes


LAWS = {"strategies": strategies, "saved": saved, "browsers": browsers, "rungs": rungs}


def judge(case: Case) -> Failure | None:
    """The first law that the model of a case breaks."""
    with settings.override(strategy="generic"):
        try:
            subject = Subject(case, ad.compile(case.graph, threads=case.threads))
        except Exception as error:
            return Failure("compile", said(error))
        for name, law in LAWS.items():
            try:
                found = ((reason, sizes) for reason, sizes in law(subject) if reason)
                broken = next(found, None)
            except Exception as error:
                return Failure(name, said(error))
            if broken:
                return Failure(name, *broken)
    return None


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_judged(seeds, small, lambda seed: replace(row_case(seed), eager=False), judge)
