"""Makes a failing function small: fewer points, lines, results and inputs, if it fails alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.shrink import smallest
from tests.torch.functions.function import Function
from tests.torch.functions.judge import Failure


def shrink(
    function: Function, failure: Failure, judged: Callable[[Function], Failure | None]
) -> tuple[Function, Failure]:
    """The smallest function found that fails in the same way, after at most 90 trials."""
    return smallest(function, failure, judged, _smaller, 90)


def _smaller(function: Function) -> Iterator[Function]:
    """Functions a step smaller, the boldest first."""
    for kind, parts in (("points", function.points), ("results", function.results)):
        if len(parts) > 1:
            yield from (replace(function, **{kind: (part,)}) for part in parts)  # type: ignore[arg-type]
    for place in reversed(range(len(function.lines))):
        rest = function.lines[:place] + function.lines[place + 1 :]
        yield replace(function, lines=rest)
    if len(function.points) == 2:
        return
    for kind in ("points", "results", "inputs"):
        parts = getattr(function, kind)
        if len(parts) > 1:
            for place in range(len(parts)):
                yield replace(function, **{kind: parts[:place] + parts[place + 1 :]})
    if function.is_recorded:
        yield replace(function, is_recorded=False)
    for holder in ("taken", "returned"):
        if getattr(function, holder):
            yield replace(function, **{holder: ""})
    if function.is_whole:
        yield replace(function, is_whole=False)
    if not function.is_dynamic:
        yield replace(function, is_dynamic=True)
    for place, each in enumerate(function.inputs):
        if each.layout != "plain":
            inputs = list(function.inputs)
            inputs[place] = replace(each, layout="plain")
            yield replace(function, inputs=tuple(inputs))
