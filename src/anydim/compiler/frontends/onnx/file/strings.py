"""Splits a model with strings and maps into three parts; strings stay on the host.

    early   operators on strings that need no computed value     on the host
    core    everything else, without strings                     compiled
    late    operators on strings that read results of core       on the host

Tokens become numbers before native code runs, and class numbers become names after it. The host
uses `host.py` and onnx's reference evaluator. String operators between two numeric parts are
Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from anydim.base.errors import AnydimError, ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.dims import DimNames, input_shapes
from anydim.compiler.frontends.onnx.file.host import operators, steps_of
from anydim.compiler.frontends.onnx.file.order import in_order, names_made, names_read
from anydim.compiler.frontends.onnx.file.reading import Opened
from anydim.compiler.frontends.onnx.file.schema import schema_of
from anydim.compiler.frontends.onnx.file.string_types import (
    STRING,
    encode_strings,
    is_string,
    number_type,
    types_of,
)
from anydim.compiler.frontends.onnx.file.tensors import unsupported_error
from anydim.runtime.string_operators import HOST, LEARNED, HostSteps, refusal
from anydim.sizes import Dim

ON_HOST = {
    "StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch",
    "CastMap", "CategoryMapper", "DictVectorizer", "Tokenizer", "ZipMap",
}  # fmt: skip
_NAMED = {
    "keys_strings", "values_strings", "pool_strings", "default_string", "cats_strings",
    "classes_strings", "classlabels_strings",
}  # fmt: skip


class StringsInside(ModelError):
    """The model `opened` holds strings. Its parts are imported one by one."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(f"{opened.name} holds strings", "compile it with anydim.compile")
        self.opened = opened


@dataclass(frozen=True)
class HostPart:
    """A part of a model that runs on the host: values in, values out, by name."""

    proto: Any
    name: str

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.proto.graph.input)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.proto.graph.output)

    @cached_property
    def steps(self) -> HostSteps | None:
        """The part in numpy; the evaluator, which has more operators, takes ten times as long."""
        return steps_of(self.proto, self.name)

    @cached_property
    def _evaluator(self) -> Any:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(self.proto, new_ops=operators())

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the part; InputError for values that its operators reject."""
        if self.steps is not None:
            return self.steps(values)
        try:
            made = self._evaluator.run(None, {name: values[name] for name in self.inputs})
        except AnydimError:
            raise
        except Exception as error:  # operators of the evaluator may raise anything
            raise refusal(self.name, self.operators, error) from None
        return dict(zip(self.outputs, made))

    @property
    def operators(self) -> list[str]:
        """The names of its operators."""
        return list(dict.fromkeys(node.op_type for node in self.proto.graph.node))


@dataclass(frozen=True)
class StringParts:
    """The parts of a model with strings; `inputs` and `outputs` are protos of the whole."""

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    early: HostPart
    core: Opened | None
    late: HostPart


def holds_strings(proto: Any) -> bool:
    """Whether inputs, outputs or intermediate values are strings."""
    values = (*proto.input, *proto.output)
    if any(is_string(value.type) for value in values):
        return True
    if any(tensor.data_type == STRING for tensor in proto.initializer):
        return True
    return any(map(_handles_strings, proto.node))


def _handles_strings(node: Any) -> bool:
    """Whether an operator produces or reads strings, judged by its attributes."""
    if node.op_type in ON_HOST:
        return True
    for attribute in node.attribute:
        if attribute.name == "to" and node.op_type == "Cast" and attribute.i == STRING:
            return True
        if node.op_type == "Constant" and attribute.name in ("value_string", "value_strings"):
            return True
        if attribute.t.data_type == STRING:
            return True
        if attribute.name in _NAMED:
            if attribute.strings or (attribute.name == "default_string" and _maps(node)):
                return True
        if any(map(_handles_strings, attribute.g.node)):
            return True
    return False


def _maps(node: Any) -> bool:
    """Whether a node maps numbers to strings."""
    return any(a.name == "values_strings" and a.strings for a in node.attribute)


# ---- the cut -------------------------------------------------------------------------------------


def cut(opened: Opened) -> StringParts:
    """Split a model with strings; ModelError if strings occur between numeric parts."""
    return _Cutting(opened).run()


class _Cutting:
    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.graph = opened.proto.graph
        if not in_order(self.graph):  # onnx's native code might crash the process
            raise ModelError(f"{opened.name}: a node reads an undefined value, or its own result")
        self.kinds = types_of(opened.proto)
        self.strings = {name for name, kind in self.kinds.items() if is_string(kind)}
        self.strings |= {t.name for t in self.graph.initializer if t.data_type == STRING}
        self.constants = {tensor.name for tensor in self.graph.initializer}
        self.fixed: dict[str, Any] = {}  # nodes of numeric constants
        taken = {
            *self.constants,
            *self.kinds,
            *names_made(self.graph.node),
            *names_read(self.graph.node),
        }
        nodes, numbers = encode_strings(self.graph.node, taken)
        self.nodes = _select_needed(nodes, [value.name for value in self.graph.output])
        self.kinds |= {name: number_type(self.kinds.get(of)) for name, of in numbers.items()}
        self._mark_strings()

    def _mark_strings(self) -> None:
        """Mark results without an inferred type as strings if an input is a string."""
        for node in self.nodes:
            if self.strings & set(names_read([node])):
                self.strings |= {name for name in node.output if name and name not in self.kinds}

    def run(self) -> StringParts:
        early, core, late = self._split()
        requested = [value.name for value in self.graph.output]
        self._refuse_unknown([*early, *late])
        self._refuse_between(core, late)
        early_made = names_made(early)
        after = {*names_read(late), *requested}
        core_outputs = [
            name
            for name in names_made(core)
            if name in after and (name not in self.fixed or name in requested)
        ]
        wanted = {*names_read(core), *after}
        early_outputs = [name for name in early_made if name in wanted]
        late_outputs = [name for name in names_made(late) if name in requested]
        return StringParts(
            self.opened.name, tuple(self._inputs()), tuple(self.graph.output),
            self._host(early, early_outputs),
            self._core(core, core_outputs) if core_outputs else None,
            self._host(late, late_outputs),
        )  # fmt: skip

    def _inputs(self) -> Iterator[Any]:
        return (value for value in self.graph.input if value.name not in self.constants)

    def _split(self) -> tuple[list[Any], list[Any], list[Any]]:
        """The nodes before, in and after native code; constants are copied to every reader."""
        ready = {value.name for value in self._inputs()} | self.constants
        parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        early, core, late = parts
        for node in self.nodes:
            reads = set(names_read([node]))
            if not (_handles_strings(node) or self.strings & {*reads, *node.output}):
                if node.op_type == "Constant":
                    self.fixed[node.output[0]] = node
                    ready.add(node.output[0])
                else:
                    core.append(node)
            elif reads <= ready:
                early.append(node)
                ready.update(node.output)
            else:
                late.append(node)
        for nodes in parts:
            nodes[:0] = [self.fixed[name] for name in dict.fromkeys(names_read(nodes))
                         if name in self.fixed]  # fmt: skip
        return parts

    def _refuse_unknown(self, nodes: Iterable[Any]) -> None:
        own = {(function.domain, function.name) for function in self.opened.proto.functions}
        versions = {entry.domain: entry.version for entry in self.opened.proto.opset_import}
        lines = [
            f"{node.name or node.output[0]}: {node.op_type} (opset {self.opened.opset}): "
            "not an operator of this opset"
            for node in nodes
            if (node.domain, node.op_type) not in own | HOST.keys()
            and not _has_schema(node, versions)
        ]
        if lines:
            raise unsupported_error(self.opened.name, lines)

    def _refuse_between(self, core: Sequence[Any], late: Sequence[Any]) -> None:
        stuck = set(names_made(late)) & set(names_read(core))
        if stuck:
            where = [n for n in core if stuck & set(names_read([n]))]
            lines = [
                f"{node.name or node.output[0]}: {node.op_type} (opset {self.opened.opset}): reads "
                "what operators on strings make of computed values" for node in where
            ]  # fmt: skip
            raise unsupported_error(self.opened.name, lines)

    def _host(self, nodes: Sequence[Any], outputs: Sequence[str]) -> HostPart:
        import onnx

        made = set(names_made(nodes))
        needed = [n for n in dict.fromkeys(names_read(nodes)) if n not in made | self.constants]
        graph = onnx.GraphProto(name=self.graph.name or "strings")
        graph.node.extend(nodes)
        held = set(names_read(nodes))
        graph.initializer.extend(t for t in self.graph.initializer if t.name in held)
        graph.input.extend(self._value(name) for name in needed)
        graph.output.extend(self._value(name) for name in outputs)
        return HostPart(self._model(graph), self.opened.name)

    def _core(self, nodes: Sequence[Any], outputs: Sequence[str]) -> Opened:
        import onnx

        read, made = set(names_read(nodes)), set(names_made(nodes))
        given = [value for value in self._inputs() if value.name in read]
        known = {value.name for value in given} | made | self.constants
        early = [
            self._value(name) for name in dict.fromkeys(names_read(nodes)) if name not in known
        ]
        graph = onnx.GraphProto(name=self.graph.name)
        graph.node.extend(nodes)
        numbers = {t.name: number for number, t in enumerate(self.graph.initializer)}
        kept = [t for t in self.graph.initializer if t.name in read]
        graph.initializer.extend(kept)
        graph.input.extend([*given, *early])
        graph.output.extend(self._value(name) for name in outputs)
        weights = {
            index: self.opened.weights[numbers[t.name]]
            for index, t in enumerate(kept)
            if numbers[t.name] in self.opened.weights
        }
        return replace(self.opened, proto=self._model(graph), weights=weights, structure=str)

    def _value(self, name: str) -> Any:
        """The declaration of a value, as far as its type is inferred; unknown sizes are free."""
        import onnx

        value = onnx.ValueInfoProto(name=name)
        if name in self.kinds:
            value.type.CopyFrom(self.kinds[name])
        return value

    def _model(self, graph: Any) -> Any:
        import onnx

        proto = onnx.ModelProto(ir_version=self.opened.proto.ir_version)
        proto.opset_import.extend(self.opened.proto.opset_import)
        if all(entry.domain != LEARNED for entry in proto.opset_import):
            proto.opset_import.add(domain=LEARNED, version=1)
        proto.functions.extend(self.opened.proto.functions)
        proto.graph.CopyFrom(graph)
        return proto


def _select_needed(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """The nodes that outputs depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(names_read([node]))
    return kept[::-1]


def _has_schema(node: Any, versions: Mapping[str, int]) -> bool:
    """Whether the standard has the operator of a node in the model's version of its domain."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(node.domain, versions.get(domain, 1))
    return schema_of(node.op_type, version, domain) is not None


def saved_part(data: bytes, name: str, fail: Callable[[str], Exception]) -> HostPart:
    """The part in the bytes of a saved ModelProto; raises `fail(problem)` for other bytes."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return HostPart(onnx.ModelProto.FromString(data), name)
    except DecodeError:
        raise fail("its part on strings is no ONNX model") from None


def reader_of(kind: Any) -> str:
    """The name of the converter in `READERS` for an input of a type."""
    inner = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
    if inner.HasField("map_type"):
        return "maps"
    if not is_string(kind):
        return ""
    return "lists" if kind.HasField("sequence_type") else "strings"


def own_dims(opened: Opened, dims: Mapping[str, Dim] | None) -> dict[str, Dim]:
    """The bounds for the dims of this part of a model."""
    names = DimNames(opened.name, dims or {})
    names.read(input_shapes(opened.proto.graph))
    return {name: dim for name, dim in names.given.items() if names.find(name) is not None}
