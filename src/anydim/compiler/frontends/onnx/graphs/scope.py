"""Imports the nodes of one ONNX graph, each by its row, function or body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from anydim.base.errors import GraphError, ModelError
from anydim.compiler.frontends.custom import find_operator
from anydim.compiler.frontends.onnx.file.schema import attributes_of, bound, domain_known, schema_of
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs import cases
from anydim.compiler.frontends.onnx.graphs.apart import Numbered
from anydim.compiler.frontends.onnx.graphs.bodies import body_of
from anydim.compiler.frontends.onnx.graphs.custom import add_defined
from anydim.compiler.frontends.onnx.graphs.functions import (
    DEEPEST,
    Function,
    called,
    check_expansion,
    find,
    is_called,
)
from anydim.compiler.frontends.onnx.graphs.inside import Failed, NodeScope
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.operators.relations import Unlike
from anydim.compiler.frontends.onnx.operators.table import OPERATORS, Build
from anydim.compiler.frontends.onnx.values.held import (
    Broken,
    Held,
    Items,
    Known,
    Maybe,
    Packed,
    Ranked,
    Result,
)
from anydim.compiler.frontends.onnx.values.kinds import proto_of
from anydim.compiler.graph.nodes import Node

STANDARD = ("", "ai.onnx")


def _microsoft() -> Any:
    """The table of onnxruntime's own operators; imported lazily, as few models use them."""
    return import_module("anydim.compiler.frontends.onnx.microsoft.table")


def _row_name(proto: Any) -> str:
    """The key of a node's operator in the table of operators."""
    return proto.op_type if proto.domain in STANDARD else f"{proto.domain}.{proto.op_type}"


class Importing(Names):
    """The names of a graph, with the import of its nodes."""

    # ---- nodes ----

    def run(self, nodes: Sequence[Any], results: Sequence[str] = ()) -> None:
        """Import nodes in order and record failures; `results` are the outputs of the graph."""
        self.produced = {name for node in nodes for name in node.output if name}
        remaining, moved = list(enumerate(nodes)), dict[str, int]()
        while remaining:
            (position, proto), *remaining = remaining
            own = proto.name or next(filter(None, proto.output), f"node {position}")
            scope = NodeScope(self, self.path + own)
            mark, before = scope.mark(), self.emitter.mark()
            try:
                self.node(proto, scope.label)
            except Unlike as reason:
                scope.reset(mark)
                self.emitter.back(before)
                moved[own] = moved.get(own, 0) + 1 + moved.get(own, 0) // 2
                remaining = self.apart_of(
                    (position, proto), remaining, results, own, moved[own], reason
                )
        self.held.update(cases.ranked(self))

    def apart_of(
        self, numbered: Numbered, remaining: Sequence[Numbered], results: Sequence[str], own: str,
        count: int, reason: Unlike,
    ) -> list[Numbered]:  # fmt: skip
        """The nodes left to import after a node whose results differ from case to case."""
        position, proto = numbered
        if proto.op_type == "If":
            try:
                return cases.followed(self, numbered, remaining, results, own, count, reason)
            except Unlike:
                raise
            except Unsupported as problem:
                self.refuse(proto, self.path + own, str(problem))
        elif reason.relation is not None and cases.is_split(self, reason.relation):
            return [(position, cases.split(self, proto, own, reason.relation)), *remaining]
        else:
            self.fall_back(proto, self.path + own, str(reason))
        return list(remaining)

    def node(self, proto: Any, label: str) -> None:
        """Add one ONNX node to the graph, or record why it fails; raises Unlike."""
        try:
            self.build(proto, label, self.inputs(proto, label))
        except Failed:
            self.held.update((name, Broken()) for name in proto.output if name)
        except Unlike:
            raise
        except (Unsupported, GraphError) as reason:
            self.fall_back(proto, label, _text(reason))

    def fall_back(self, proto: Any, label: str, reason: str) -> None:
        """Run a node in onnxruntime if allowed; else record why it cannot be imported."""
        if self.model.fallback:
            try:
                import_module("anydim.compiler.frontends.onnx.graphs.foreign").add_foreign_node(
                    self, proto, label, reason
                )
                return
            except Unsupported as other:
                reason = f"{reason}; nor by onnxruntime: {other}"
        self.refuse(proto, label, reason)

    def refuse(self, proto: Any, label: str, reason: str) -> None:
        """Record why a node cannot be imported."""
        self.fail(label, proto.op_type, reason)
        self.held.update((name, Broken()) for name in proto.output if name)

    def inputs(self, proto: Any, label: str) -> tuple[Held | None, ...]:
        found: list[Held | None] = []
        for name in proto.input:
            try:
                found.append(self.lookup(name) if name else None)
            except KeyError:
                made = name in self.produced  # nodes are sorted, so this is a cycle
                problem = "depends on its own result" if made else "is not defined"
                raise ModelError(
                    f"{self.model.name}, node '{label}' ({proto.op_type}): "
                    f"its input '{name}' {problem}",
                    "a graph has no cycles; what repeats is a Loop or a Scan" if made else "",
                ) from None
        return tuple(found)

    def build(self, proto: Any, label: str, inputs: tuple[Held | None, ...]) -> None:
        """Add the nodes of one ONNX node, from its row or its body."""
        function = find(self.model.functions, proto)
        if function is not None:
            if self.whole(proto, inputs):
                self.function(function, proto, label, inputs)
            return
        definition = find_operator(self.model.operators, proto.domain, proto.op_type)
        if definition is not None:
            if self.whole(proto, inputs):
                add_defined(self, definition, proto, label, inputs)
            return
        row, schema = self.described(proto)
        if row is not None:
            call = self.call(proto, schema, label, inputs)
            if not self.whole(proto, inputs):
                return
            results = row(call)
            if results is not None:
                self.define(proto, call, results)
                return
        if not (schema.has_function or schema.has_context_dependent_function):
            raise Unsupported("not supported")
        if not self.whole(proto, inputs):
            return
        kinds = [None if held is None else proto_of(self.emitter, held) for held in inputs]
        body = body_of(_resolved(proto, self.attributes), schema, self.opset, kinds)
        if body is None:
            raise Unsupported("not supported")
        self.expand(Function.of(body[0], self.opset), body[1], proto, label, inputs, strict=True)

    def described(self, proto: Any) -> tuple[Build | None, Any]:
        """The row of a node's operator, if there is one, and its schema."""
        domain = "" if proto.domain in STANDARD else proto.domain
        if domain or schema_of(proto.op_type, self.opset) is None:
            found = _microsoft().find(domain, proto.op_type)
            if found is not None:
                return found
        return OPERATORS.get(_row_name(proto)), self.schema(proto, domain)

    def schema(self, proto: Any, domain: str) -> Any:
        """The standard's schema of a node's operator; Unsupported if there is none."""
        if domain and domain in _microsoft().REFUSED:
            raise Unsupported(f"domain '{domain}': {_microsoft().REFUSED[domain]}")
        if not domain_known(domain):
            known = "no operator of " if domain == _microsoft().DOMAIN else ""
            raise Unsupported(f"{known}domain '{domain}'")
        opset = self.model.domains.get(domain) if domain else self.opset
        if opset is None:
            raise Unsupported(f"domain '{domain}', of which the model imports no opset")
        schema = schema_of(proto.op_type, opset, domain)
        if schema is None:
            raise Unsupported("not an operator of this opset")
        return schema

    def whole(self, proto: Any, inputs: tuple[Held | None, ...]) -> bool:
        """Whether all inputs were imported; if not, marks the results as failed."""
        if not any(isinstance(held, Broken) for held in inputs):
            return True
        self.held.update((name, Broken()) for name in proto.output if name)
        return False

    def call(
        self, proto: Any, schema: Any, label: str, inputs: tuple[Held | None, ...]
    ) -> OnnxNode:
        """The node with its attributes checked against the standard; Unsupported otherwise."""
        if not schema.min_input <= len(inputs) <= schema.max_input:
            raise Unsupported(f"{len(inputs)} inputs")
        if len(proto.output) > schema.max_output or (schema.min_output and not proto.output):
            raise Unsupported(f"{len(proto.output)} results")
        outputs = [self.value_name(name) for name in proto.output]
        while outputs and not outputs[-1]:
            outputs.pop()
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        attributes = attributes_of(proto, schema, self.attributes)
        return OnnxNode(
            self.emitter, proto.op_type, self.opset, inputs, tuple(outputs) or ("",),
            attributes, f"{self.model.name}: {label}", NodeScope(self, label),
        )  # fmt: skip

    def define(self, proto: Any, call: OnnxNode, results: Result | Sequence[Result]) -> None:
        """Bind the results to their names; folds nodes over known values."""
        if isinstance(results, (str, Known, Items, Packed, Maybe, Ranked, Broken)):
            results = [results]
        emitter = self.emitter
        nodes = call.nodes
        own = {name for node in nodes for name in node.outputs}
        given = {name for node in nodes for name in node.given} - own
        if nodes and all(n in emitter.known or n in emitter.assumed for n in given):
            folded = emitter.fold(nodes)
            emitter.assumed.update(folded.assumed)
            if folded.known is not None:
                for name, known in folded.known.items():
                    emitter.add_known(name, known, call.source)
                nodes, own = [], set()
        renamed: dict[str, str] = {}
        for name, value, result in zip(proto.output, call.outputs, results):
            if not name:
                continue
            if isinstance(result, Known):
                emitter.add_known(value, result, call.source)
                self.held[name] = value
            elif isinstance(result, str) and result in own and result not in renamed:
                renamed[result] = value
                emitter.types[value] = emitter.types.pop(result)
                if result in emitter.known:
                    emitter.known[value] = emitter.known.pop(result)
                if result in emitter.assumed:
                    emitter.assumed[value] = emitter.assumed.pop(result)
                self.held[name] = value
            else:
                self.held[name] = renamed.get(result, result) if isinstance(result, str) else result
        emitter.commit(_renamed(nodes, renamed))

    # ---- functions ----

    def function(
        self, function: Function, proto: Any, label: str, inputs: tuple[Held | None, ...]
    ) -> None:
        """Import a call of a model's function: inline its nodes, or add a node that calls it."""
        given = {a.name: a for a in bound(proto.attribute, self.attributes)}
        attributes = {**function.defaults, **given}
        formals = function.proto
        if len(inputs) > len(formals.input) or len(proto.output) > len(formals.output):
            raise Unsupported("more inputs or results than its function has")
        if not self.model.depth:
            check_expansion(self.model, function, label)
        if self.model.depth >= DEEPEST:
            raise Unsupported("functions call each other without end")
        self.model.depth += 1
        try:
            if is_called(function, self.model.functions, self.emitter, inputs):
                values = [held for held in inputs if isinstance(held, str)]
                node, names = called(self, function, attributes, label, values)
                self.emitter.commit([node])
                self.held.update(zip(proto.output, names))
            else:
                self.expand(function, attributes, proto, label, inputs, strict=False)
        finally:
            self.model.depth -= 1

    def expand(
        self, function: Function, attributes: Mapping[str, Any], proto: Any, label: str,
        inputs: Sequence[Held | None], strict: bool,
    ) -> None:  # fmt: skip
        """Inline the nodes of a function in place of a node.

        `strict`: errors of its parts are reported for the node.
        """
        formals = function.proto
        inner = Importing(self.model, self.emitter, function.opset, None, label, attributes)
        inner.path = self.path if strict else f"{label}/"
        inner.held = dict.fromkeys(formals.input)
        inner.held.update(zip(formals.input, inputs))
        for formal, name in zip(formals.output, proto.output):
            if name and formal not in inner.held:
                inner.value_names[formal] = self.value_name(name)
        if strict:
            for part in formals.node:
                try:
                    inner.build(part, label, inner.inputs(part, label))
                except (Unsupported, GraphError) as reason:
                    raise Unsupported(f"its part {part.op_type}: {_text(reason)}") from None
        else:
            inner.run(formals.node, formals.output)
        for formal, name in zip(formals.output, proto.output):
            if name:
                self.held[name] = inner.result(formal, label)


def _resolved(proto: Any, function: Mapping[str, Any]) -> Any:
    """A node with references to function attributes resolved."""
    if not any(attribute.ref_attr_name for attribute in proto.attribute):
        return proto
    own = type(proto)()
    own.CopyFrom(proto)
    del own.attribute[:]
    own.attribute.extend(bound(proto.attribute, function))
    return own


def _text(reason: Unsupported | GraphError) -> str:
    return reason.problem if isinstance(reason, GraphError) else str(reason)


def _renamed(nodes: Iterable[Node], names: Mapping[str, str]) -> list[Node]:
    if not names:
        return list(nodes)
    return [
        Node(
            node.operator,
            tuple(names.get(n, n) if n else n for n in node.inputs),
            tuple(names.get(n, n) for n in node.outputs),
            node.attributes,
            node.source,
        )
        for node in nodes
    ]
