"""Oracles for ONNX models: onnx's reference evaluator, and the installed onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import MissingError, UserError
from anydim.base.peer import peer_module
from anydim.compiler.checking.oracle import Answer, Arrays, NoAnswer, Oracle, first_line
from anydim.compiler.frontends.origins import ModelFile
from anydim.runtime.devices.engines.onnxruntime import may_crash

_RANDOM = frozenset((
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial",
))  # fmt: skip
_QUIET = 4  # log level of onnxruntime: errors are raised anyway


def reference(file: ModelFile) -> Oracle:
    """onnx's reference evaluator on the file itself; raises NoAnswer for an unsupported model."""
    proto = _repeatable(file)
    onnx, module = import_module("onnx"), import_module("onnx.reference")
    try:
        made = module.ReferenceEvaluator(proto)
    except Exception as error:
        raise NoAnswer(first_line(error)) from None
    title = f"onnx {onnx.__version__}'s reference evaluator"
    note = "computes in the types of the file"
    return Oracle("reference", title, note, _by(made.run, made.output_names, _declared(proto)))


def onnxruntime(file: ModelFile) -> Oracle:
    """The installed onnxruntime, unoptimised; raises NoAnswer if missing or unsupported."""
    try:
        module = peer_module()
    except MissingError as error:
        raise NoAnswer(error.problem) from None
    proto = _repeatable(file)
    options = module.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    try:
        session = module.InferenceSession(file.bytes(), options, providers=providers)
    except Exception as error:
        raise NoAnswer(first_line(error)) from None
    names = [value.name for value in session.get_outputs()]
    risky = any(may_crash(_key(node)) for node in _nodes(proto))
    title = f"onnxruntime {module.__version__}, without optimisations"
    note = "computes in the types of the file"
    answer = _by(session.run, names, _declared(proto), risky)
    return Oracle("onnxruntime", title, note, answer, True, 16e9, 512 * 2.0**20)


def _repeatable(file: ModelFile) -> Any:
    """The model; raises NoAnswer for one that draws random numbers."""
    proto = _proto(file)
    drawn = [node.op_type for node in _nodes(proto) if _draws(node)]
    if drawn:
        raise NoAnswer(f"{drawn[0]} draws different random numbers in each engine")
    return proto


def _proto(file: ModelFile) -> Any:
    """The model; raises NoAnswer if it cannot be read."""
    onnx, source = import_module("onnx"), file.source
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            return onnx.load_from_string(bytes(source))
        return source if hasattr(source, "graph") else onnx.load(source)
    except Exception as error:
        raise NoAnswer(first_line(error)) from None


def _draws(node: Any) -> bool:
    """Whether a node draws random numbers; a dropout may, if it has an input `training_mode`."""
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2)


def _key(node: Any) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _nodes(proto: Any) -> list[Any]:
    """All nodes, including those of nested graphs and functions."""
    found, waiting = [], [proto.graph, *proto.functions]
    while waiting:
        for node in waiting.pop().node:
            found.append(node)
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else attribute.graphs
    return found


def _declared(proto: Any) -> dict[str, str]:
    """The declared element types of results, by name."""
    helper = import_module("onnx.helper")
    kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.output}
    return {n: helper.tensor_dtype_to_np_dtype(kind).name for n, kind in kinds.items() if kind}


def _by(
    run: Any, names: Sequence[str], declared: Mapping[str, str], risky: bool = False
) -> Callable[[Arrays], Mapping[str, Answer]]:
    """An `answer` from a function of (None, inputs); `risky` ones reject empty tensors.

    Types are the declared ones of the file, whatever type the engine uses for a result.
    """

    def answer(inputs: Arrays) -> Mapping[str, Answer]:
        if risky and any(array.size == 0 for array in inputs.values()):
            raise NoAnswer("it may crash on empty tensors")
        try:
            with warnings.catch_warnings(), numpy.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = run(None, {name: array.copy() for name, array in inputs.items()})
        except UserError:
            raise
        except Exception as error:
            raise NoAnswer(first_line(error)) from None
        return {name: _answer(name, value, declared) for name, value in zip(names, found)}

    return answer


def _answer(name: str, value: Any, declared: Mapping[str, str]) -> Answer:
    if value is None or isinstance(value, (list, tuple, dict)):
        raise NoAnswer(f"'{name}' is no tensor")
    array = numpy.asarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        raise NoAnswer(f"'{name}' does not contain numbers")
    return Answer(declared.get(name) or from_numpy(array.dtype).name, array)
