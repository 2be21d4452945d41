"""A worker process that compiles variants: reads requests as lines of JSON, writes replies.

It exits with its parent, even while it works, or after `IDLE` seconds without a request. It can be
killed at any time: it writes only its replies and entries of the cache of compiled code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any, BinaryIO

from anydim.base.errors import UserError
from anydim.base.reports import internal
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.targets.target import Target
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.candidates import Candidate, by_text, size_site
from anydim.compiler.variants.child_process import Tied, end_with_parent
from anydim.compiler.variants.general_search import search_whole
from anydim.compiler.variants.search import search
from anydim.compiler.variants.trial import Tried
from anydim.runtime.program.recipe import parse_recipe
from anydim.runtime.variant_tables import Key, key_of

IDLE = 120.0  # seconds
Answer = dict[str, Any]


def answer(request: Mapping[str, Any]) -> Answer:
    """Handle a request for a site at sizes: all candidates tried, and code for the best one.

    A request has the text of a `recipe`, `sizes` (the low ends of a span if it has `high`), the
    name of a `target`, and `most`, the maximum time ratio of a variant to the generic kernel; it is
    searched for `budget` seconds, or among schedules `found` before. With `most` None, compiles the
    generic schedule or the given `schedule` without measuring. With `samples`, searches for a
    general schedule.
    """
    start = time.perf_counter()
    code, recipe = target(request["target"]), parse_recipe(request["recipe"])
    if request["samples"]:
        samples = [(tuple(sizes), float(weight)) for sizes, weight in request["samples"]]
        guards, rest = map(tuple, request["guards"]), (request["threads"], request["budget"])
        scored = search_whole(recipe, samples, list(guards), code, *rest)
        rows = [_row(each.schedule, each.ratio, each.problem) for each in scored]
        return {"found": None, "tried": rows, "seconds": time.perf_counter() - start}
    site = size_site(recipe, code.templates, _key(request))
    tried: list[Tried] = []
    best: Candidate | None = None
    if site is not None and request["most"] is None:
        best = by_text(site, code.templates, request["schedule"] or site.generic.schedule)
    elif site is not None:
        near = request["bits"] == "any"
        how = request["budget"], request["threads"], near, request["found"]
        tried = search(site, code, *how)
        ratio = tried[-1].ratio if tried else None
        if ratio is not None and ratio <= request["most"]:
            best = tried[-1].candidate
    rows = [_row(t.candidate.schedule, t.ratio, t.problem) for t in tried]
    made = None if best is None else _code(best, code)
    return {"found": made, "tried": rows, "seconds": time.perf_counter() - start}


def _row(schedule: str, ratio: float | None, problem: str) -> Answer:
    return {"schedule": schedule, "ratio": ratio, "problem": problem}


def _key(request: Mapping[str, Any]) -> Key:
    low = tuple(request["sizes"])
    return key_of(low, tuple(request["high"] or low))


def _code(candidate: Candidate, target: Target) -> Answer:
    """Compile a candidate to object files that the parent can load."""
    kernel, extent = candidate.kernel, candidate.extent
    made: list[Kernel | Library] = [kernel, *filter(None, [extent])]
    objects = target.compile(target.sources(made, target.processor), 1).code.values()
    return {
        "schedule": candidate.schedule,
        "symbol": kernel.name,
        "extent": "" if extent is None else extent.name,
        "parallel": candidate.parallel,
        "grain": candidate.grain,
        "scratch": candidate.scratch,
        "objects": [base64.b64encode(each).decode() for each in objects],
        "digest": hashlib.sha256(b"".join(objects)).hexdigest(),
    }


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Handle requests until the end of input."""
    while True:
        idle = threading.Timer(IDLE, os._exit, (0,))
        idle.daemon = True
        idle.start()
        line = requests.readline()
        idle.cancel()
        if not line:
            return
        made: Answer = {"found": None, "tried": [], "seconds": 0.0}
        try:
            made = answer(json.loads(line))
        except UserError as error:
            made["problem"] = str(error)
        except Exception as error:  # a bug: the parent warns about it
            made["problem"] = made["bug"] = str(internal(error))
        answers.write(json.dumps(made).encode() + b"\n")
        answers.flush()


def main(tied: Tied) -> None:
    """Run the worker, with stdout redirected to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(tied)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(open(0, "rb", buffering=0), answers)  # noqa: SIM115
