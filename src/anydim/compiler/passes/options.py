"""User options for a program's kernels, as text or in Python.

    matmul: contraction(rows=6, vectors=2)     the kernel of matmul
    softmax.y: rows(lanes=8)                   the kernel that makes its result y
    softmax: fuse=false                        a kernel for each statement
    softmax: memory=apart                      no two values share memory
    softmax: precision=fast                    divisions as products with reciprocals

A line that starts with `#` is a comment. A schedule may name only some of its options; `print` of
the options of a function shows all of them, in this form. Options apply at all sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from importlib import import_module
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import short_repr
from anydim.compiler.kernels.launch import TF32
from anydim.compiler.kernels.schedule import by_current_name, parse_options, print_schedule
from anydim.compiler.passes.memory import PLANNERS, STACKED, Planner

_LINE = re.compile(r"\s*([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?\s*:\s*([^#]*?)\s*(?:#.*)?")
_WORD = re.compile(r"(\w+)\s*=\s*(\w+)")
EXACT, FAST = "exact", "fast"
BFLOAT16, INT8 = "bfloat16", "int8"
BFLOAT16X2, BFLOAT16X3 = "bfloat16x2", "bfloat16x3"
AUTO = "auto"  # chosen by measurements (api/precision_choice.py)
# parts of a factor of a product with constants, each of them a bfloat16
BFLOAT16_PARTS: Mapping[str, int] = {BFLOAT16X3: 3, BFLOAT16X2: 2, BFLOAT16: 1}
_PRECISIONS = (EXACT, FAST, TF32, *BFLOAT16_PARTS, INT8)
_WORDS: Mapping[str, Mapping[str, Any]] = {  # options of a whole function other than schedules
    "fuse": {"true": True, "false": False},
    "memory": PLANNERS,
    "precision": {precision: precision for precision in _PRECISIONS},
}
ROUNDED = "/bfloat16"  # ends the name of a result that is stored rounded (`store_rounded.py`)
WHOLE = ""  # the key of the schedule for every kernel of a function


@dataclass(frozen=True)
class KernelOptions:
    """Schedules by the name of a result (`WHOLE`: any), and whether statements are fused.

    `memory` is the planner of the arena.
    `precision`: "exact" rounds every division correctly; "fast" computes divisions by literals and
    by values shared along a row as products with reciprocals, off by one or two units in the last
    place; "tf32" also rounds the float32 factors of products on devices to 11 bits; "bfloat16" is
    fast and rounds the factors of products with constants on processors to 8 bits, "bfloat16x2" and
    "bfloat16x3" on those with tiles to sums of two or three such numbers, "int8" to integers of 8
    bits with a scale for each row of values and each column of weights.
    `nodes` are the precisions of products of some nodes, by `Node.source`.
    `pads` are the sizes to which a strategy pads dims.
    """

    schedules: FrozenMapping[str, str] = field(default_factory=FrozenMapping)
    fuse: bool = True
    memory: Planner = STACKED
    precision: str = EXACT
    nodes: FrozenMapping[str, str] = field(default_factory=FrozenMapping)
    pads: FrozenMapping[str, int | str] = field(default_factory=FrozenMapping)

    @property
    def precisions(self) -> frozenset[str]:
        """The precisions of the model and of its nodes."""
        return frozenset((self.precision, *self.nodes.values()))

    def requested_schedule(self, results: Iterable[str]) -> tuple[str, str] | None:
        """The key and the text of the schedule for a kernel with these results."""
        for result in results:
            result = result.removesuffix(ROUNDED)
            for name in (result, result.rsplit("/", 1)[-1]):
                if name in self.schedules:
                    return name, self.schedules[name]
        return (WHOLE, self.schedules[WHOLE]) if WHOLE in self.schedules else None


PLAIN = KernelOptions()  # defaults


def known_precision(given: Any) -> str:
    """Validate a precision; raises OptionError for an unknown name."""
    if not isinstance(given, str) or given not in _PRECISIONS:
        *first, last = (f"'{name}'" for name in _PRECISIONS)
        expected = f"{', '.join(first)} or {last}"
        raise OptionError(f"precision is {short_repr(given)}, expected {expected}")
    return str(given)


def parse_texts(text: str) -> dict[str, KernelOptions]:
    """Parse options by function, from lines; raises OptionError for a malformed line."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = _LINE.fullmatch(line)
        if whole is None:
            raise OptionError(
                f"options, line {number}: '{line.strip()}' is not an option",
                "write: function.result: schedule(option=value)",
            )
        function, result, requested = whole.groups()
        word = _WORD.fullmatch(requested)
        own = found.setdefault(function, {})
        if word is not None and word[2] in _WORDS.get(word[1], {}):
            own[word[1]] = _WORDS[word[1]][word[2]]
        else:
            own[result or WHOLE] = requested
    return {function: _options(own) for function, own in found.items()}


def given_options(given: Any, functions: Iterable[str]) -> dict[str, KernelOptions]:
    """Options by function, from a text or a mapping; raises OptionError for other values.

    A mapping has for each function a schedule (a text or a record), or a mapping from results (and
    the words 'fuse', 'memory' and 'precision') to schedules.
    """
    known = list(functions)
    if given is None:
        return {}
    if isinstance(given, str):
        found = parse_texts(given)
    elif isinstance(given, Mapping):
        found = {name: _options(requested) for name, requested in given.items()}
    else:
        raise OptionError(f"options are a text or a mapping, not {type(given).__name__}")
    for name in found:
        if name not in known:
            hint = suggestion(name, known) or f"there is {quote_list(known)}"
            raise OptionError(f"options refer to '{name}', which is not defined", hint)
    return found


def _options(given: Any) -> KernelOptions:
    if isinstance(given, KernelOptions):
        return given
    if not isinstance(given, Mapping):
        given = {WHOLE: given}
    rest = dict(given)
    fuse = rest.pop("fuse", True)
    if not isinstance(fuse, bool):
        raise OptionError(f"option 'fuse' is {fuse!r}, expected true or false")
    memory = rest.pop("memory", STACKED)
    if isinstance(memory, str):
        memory = PLANNERS.get(memory, memory)
    if not isinstance(memory, Planner):
        hint = f"there is {quote_list(PLANNERS)}; or give a planner"
        raise OptionError(f"option 'memory' is {memory!r}", hint)
    precision = known_precision(rest.pop("precision", EXACT))
    texts = {
        name: by_current_name(wish) if isinstance(wish, str) else print_schedule(wish)
        for name, wish in rest.items()
    }
    if texts:
        import_module("anydim.compiler.kernels.templates")  # names the schedules
    for text in texts.values():
        parse_options(text)
    return KernelOptions(FrozenMapping(texts), fuse, memory, precision)
