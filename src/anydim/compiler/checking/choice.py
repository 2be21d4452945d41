"""Choice of the oracles for a model: the best independent one first, the evaluator last."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.base.user_values import path_of
from anydim.compiler.checking.models import onnxruntime, reference
from anydim.compiler.checking.oracle import Function, NoAnswer, Oracle, evaluator
from anydim.compiler.frontends.origins import DefinitionCall, ModelFile, Origin
from anydim.compiler.frontends.table import ONNX

KNOWN = ("reference", "onnxruntime", "evaluator")


@dataclass(frozen=True)
class Oracles:
    """`ordered` oracles are tried in turn until one answers; `judges` arbitrate differences.

    `refused` are oracles that do not support the model, with reasons.
    """

    ordered: tuple[Oracle, ...]
    judges: Callable[[], tuple[Oracle, ...]] = tuple
    refused: Mapping[str, str] = field(default_factory=dict)


def oracles_for(
    origin: Origin, reference_of: Function | None, dtypes: Mapping[str, str], against: Any = None
) -> Oracles:
    """The oracles of a model; `against` names one, is one, or is an ONNX file used instead.

    Raises OptionError for an unknown oracle, and for one that does not support this model.
    """
    if isinstance(against, Oracle):
        return Oracles((against,))
    kinds = {
        "reference": lambda: reference(_file(origin, "onnx's reference evaluator")),
        "onnxruntime": lambda: onnxruntime(_file(origin, "onnxruntime")),
        "evaluator": lambda: _evaluator(origin, reference_of, dtypes),
    }
    against = str(against) if isinstance(against, str) else against  # with a hash
    named = isinstance(against, str) and against in kinds
    if against is not None and not named:
        origin = _given(against)
    chosen = [against] if named else list(KNOWN)
    found: dict[str, Oracle] = {}
    refused: dict[str, str] = {}
    for name in chosen:
        if name == "onnxruntime" and found:
            continue  # used as judge
        if name == "evaluator" and against is not None and against != name:
            continue
        try:
            found[name] = kinds[name]()
        except NoAnswer as reason:
            refused[name] = str(reason)
    if against is not None and not found:
        why = "; ".join(refused.values())
        raise OptionError(f"there is no oracle to compare with: {why}", _HINT)
    return Oracles(tuple(found.values()), _judges(origin, found), refused)


_NONE = "no other oracle: neither an ONNX file nor a definition of it is available"
_HINT = f"against is one of {quote_list(KNOWN)}, or the path of an ONNX file"


def _judges(origin: Origin, found: Mapping[str, Oracle]) -> Callable[[], tuple[Oracle, ...]]:
    def judges() -> tuple[Oracle, ...]:
        if "reference" not in found or not isinstance(origin, ModelFile):
            return ()
        try:
            return (onnxruntime(origin),)
        except NoAnswer:
            return ()

    return judges


def _file(origin: Origin, what: str) -> ModelFile:
    if isinstance(origin, ModelFile):
        return origin
    raise NoAnswer(_NONE if origin is None else f"{what} supports only ONNX files")


def _evaluator(origin: Origin, reference_of: Function | None, dtypes: Mapping[str, str]) -> Oracle:
    if reference_of is None:
        raise NoAnswer("a saved model has no graph to evaluate")
    what = {ModelFile: "import", DefinitionCall: "resolver"}.get(type(origin), "graph")
    return evaluator(reference_of, dtypes, what)


def _given(against: Any) -> Origin:
    if isinstance(against, (str, os.PathLike)):
        path = path_of("against", against, _HINT)
        if os.path.isfile(path):
            return ModelFile(path)
        raise OptionError(f"there is no oracle or file '{path}'", _HINT)
    found = ONNX.origin(against)
    if not isinstance(found, ModelFile):
        raise OptionError(f"against is a value of type {type(against).__name__}", _HINT)
    return found
