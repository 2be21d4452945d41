"""Ordered steps -> nodes: statements become single-assignment values, loops become `loop` nodes.

Inside a loop a tensor is one of three things:

    carried   defined before the loop, redefined as a whole in every iteration
    stacked   one slice along the first axis is written in every iteration
    local     defined as a whole before it is read

A read of a slice other than the one the iteration writes reads the stack as of now. Everything else
(nested loops, other write patterns) is `Unsuitable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph import regions
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.passes.flow import fused_node, group_of, unique_name
from anydim.compiler.passes.hoist import Hoist
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Expr,
    Group,
    Index,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import affine, reads, rewrite
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.stepping import writes
from anydim.sizes import Box, Dim, Size, Truth, ceil_div, maximum, prove
from anydim.sizes.guard import Guard

_RELATIONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<="}
_MIRRORED = {"greater": "less", "greater_equal": "less_equal"}


class Unsuitable(Exception):
    """Steps that cannot become nodes; one kernel runs all of them."""


def expand_node(
    node: Node, group: Group, graph: Graph, types: dict[str, TensorType], machine: Machine
) -> list[Node]:
    """Expand `node` to equivalent nodes; adds the types of their values to `types`.

    Raises Unsuitable.
    """
    all_tensors = (*group.inputs, *group.outputs, *group.temporaries)
    names = {tensor.name: unique_name(tensor.name, types) for tensor in all_tensors}
    tensors = {names[tensor.name]: tensor.type for tensor in all_tensors}
    given = zip(group.inputs, node.given)
    transposed = frozenset(
        names[tensor.name] for tensor, value in given if _is_transposed(value, graph)
    )
    work = _Work(node, dict(types), tensors, machine, transposed)
    scope = _Scope(work, graph.box, graph.constants)
    scope.current = {names[t.name]: value for t, value in zip(group.inputs, node.given)}
    scope.run(rename_steps(group.steps, names))
    for tensor, own in zip(group.outputs, node.outputs):
        scope.result(scope.value(names[tensor.name]), own)
    used = {n for made in scope.nodes for n in (*made.given, *made.outputs)}
    types.update({name: work.types[name] for name in used})
    return scope.nodes


def _is_transposed(value: str, graph: Graph) -> bool:
    """Whether a value transposes the first two axes of another."""
    node = graph.producers.get(value)
    if node is None or node.operator != "transpose":
        return False
    return tuple(node.attributes.get("perm") or ())[:2] == (1, 0)


@dataclass
class _Work:
    """State shared by all scopes of one node: types of values and of its steps' tensors."""

    origin: Node
    types: dict[str, TensorType]
    tensors: dict[str, TensorType]
    machine: Machine
    transposed: frozenset[str]  # tensors whose first two axes are exchanged in memory

    def fresh(self, stem: str, kind: TensorType) -> str:
        """Name a new value of type `kind`."""
        taken = self.types.keys() | self.tensors.keys()
        name = unique_name(f"{self.origin.outputs[0]}/{stem}", taken)
        self.types[name] = kind
        return name

    def node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str],
        region: regions.Region | None = None,
    ) -> Node:  # fmt: skip
        """A node with the source of the original node."""
        attributes = FrozenMapping({} if region is None else {regions.REGION: region})
        source, device = self.origin.source, "" if region else self.origin.device
        return Node(operator, tuple(inputs), tuple(outputs), attributes, source, device)


@dataclass
class _Stack:
    """A tensor of which every iteration writes the slice at `position`."""

    position: Size
    whole: str  # the value of the stack as of now
    slice: str | None = None  # the value of this iteration's slice, once written


@dataclass
class _Scope:
    """Converts steps to nodes of one graph; `current` maps tensors to their values."""

    work: _Work
    box: Box
    constants: Mapping[str, Constant]
    current: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, _Stack] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    made: set[str] = field(default_factory=set)

    def run(self, steps: Iterable[OrderedStep]) -> None:
        for step in steps:
            if isinstance(step, Statement):
                self.current[step.target] = self.define(step)
            elif isinstance(step, Write):
                self.write(step)
            elif isinstance(step, Branch):
                self.branch(step)
            else:
                self.loop(step)

    def value(self, tensor: str) -> str:
        """The current value of a tensor."""
        if tensor not in self.current:
            raise Unsuitable(f"'{tensor}' is read before it is whole")
        return self.current[tensor]

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.made.update(node.outputs)

    def result(self, value: str, name: str) -> None:
        """Give a value the name of a result, by renaming it at a loop or by a copy."""
        kind = self.work.types[name] = self.work.types[value]
        assert kind is not None
        makers = [n for n, node in enumerate(self.nodes) if value in node.outputs]
        read = any(value in node.given for node in self.nodes)
        if read or not makers or self.nodes[makers[0]].operator != regions.LOOP:
            self.add(self.work.node("identity", (value,), (name,)))
            return
        maker = self.nodes[makers[0]]
        outputs = tuple(name if output == value else output for output in maker.outputs)
        self.nodes[makers[0]] = replace(maker, outputs=outputs)
        self.made.add(name)

    # ---- statements ----

    def define(self, statement: Statement) -> str:
        """Add a node for a statement over current values; return its value."""
        kind = TensorType(self.work.tensors[statement.target].dtype, statement.shape)
        name = self.work.fresh(statement.target, kind)
        made = replace(statement, target=name, body=rewrite(statement.body, self._present))
        group = group_of([made], self.work.types, [name])
        self.add(fused_node(group, self.work.origin.source, self.work.origin.device))
        return name

    def _present(self, expr: Expr) -> Expr | None:
        """Rewrite a read of a tensor as a read of its current value."""
        if not isinstance(expr, Read) or expr.tensor not in self.work.tensors:
            return None
        stack = self.stacks.get(expr.tensor)
        if stack is None:
            return replace(expr, tensor=self.value(expr.tensor))
        first = None if expr.flat else affine(expr.indices[0])
        if first is None or first.terms:
            raise Unsuitable("a stack is read across its slices")
        away = (first.constant - stack.position).constant
        if away is None:
            raise Unsuitable("the distance to the slice that is read is not constant")
        if away == 0 and stack.slice is not None:
            return replace(expr, tensor=stack.slice, indices=expr.indices[1:])
        return replace(expr, tensor=stack.whole)

    def write(self, step: Write) -> None:
        stack = self.stacks.get(step.target)
        written = step.indices if stack is None else step.indices[1:]
        axes = _in_order(written, step.axes)
        shape = self.work.tensors[step.target].shape[len(step.indices) - len(written) :]
        if axes is None or tuple(axis.extent for axis in axes) != shape:
            if stack is not None:
                raise Unsuitable("a part of a slice is written")
            self.current[step.target] = self._part(step)
            return
        indices: tuple[Expr, ...] = tuple(Index(axis.name) for axis in axes)
        accumulates = bool(step.combine) and not step.fresh
        if step.reduced or not accumulates:
            combine = step.combine if step.reduced else ""
            made = self.define(Statement(step.target, axes, step.body, combine, step.reduced))
        if accumulates:
            own = indices if stack is None else (SizeTerm(stack.position), *indices)
            body = Read(made, indices) if step.reduced else step.body
            both = Apply(step.combine, (Read(step.target, own), body))
            made = self.define(Statement(step.target, axes, both))
        if stack is None:
            self.current[step.target] = made
        else:
            stack.slice = made

    def _part(self, step: Write) -> str:
        """Add a node that writes a part of a tensor and copies its previous elements."""
        kind = self.work.tensors[step.target]
        made = self.work.fresh(step.target, kind)
        steps: list[OrderedStep] = []
        if step.target in self.current:
            axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape))
            old = Read(self.current[step.target], tuple(Index(axis.name) for axis in axes))
            steps.append(Statement(made, axes, old))
        rewritten = replace(
            step, target=made, body=rewrite(step.body, self._present),
            indices=tuple(rewrite(index, self._present) for index in step.indices),
        )  # fmt: skip
        if any(read.tensor == self.current.get(step.target) for read in reads(rewritten.body)):
            raise Unsuitable("a part of a tensor is written from itself")
        steps.append(rewritten)
        exprs = [step.body for step in steps if isinstance(step, (Statement, Write))]
        exprs += rewritten.indices
        given = dict.fromkeys(read.tensor for expr in exprs for read in reads(expr))
        inputs = tuple(Tensor(name, self.work.types[name]) for name in given)
        group = Group(inputs, (Tensor(made, kind),), (), steps=tuple(steps))
        self.add(fused_node(group, self.work.origin.source, self.work.origin.device))
        return made

    # ---- branches ----

    def branch(self, step: Branch) -> None:
        condition = _relation(step.condition)
        arms = [self._arm(steps) for steps in (step.then, step.otherwise)]
        tensors = dict.fromkeys(name for arm in arms for name in arm.current)
        now = self.current
        changed = [n for n in tensors if any(s.current.get(n) != now.get(n) for s in arms)]
        kept = [n for n in changed if all(n in arm.current for arm in arms)]
        slices = [
            name for name, stack in self.stacks.items()
            if any(arm.stacks[name].slice != stack.slice for arm in arms)
        ]  # fmt: skip
        results = [
            [*(arm.current[n] for n in kept), *(arm.written_slice(n) for n in slices)]
            for arm in arms
        ]
        given = list(dict.fromkeys(n for arm, r in zip(arms, results) for n in arm.outside(r)))
        types = [self.work.types[value] for value in results[0]]
        graphs = [arm.graph(made, given) for arm, made in zip(arms, results)]
        names = [self.work.fresh(t, kind) for t, kind in zip((*kept, *slices), types)]
        region = regions.BranchRegion(graphs[0], graphs[1], condition)
        self.add(self.work.node(regions.BRANCH, given, names, region))
        for tensor in changed:
            self.current.pop(tensor, None)
        self.current.update(zip(kept, names))
        for tensor, name in zip(slices, names[len(kept) :]):
            self.stacks[tensor].slice = name

    def written_slice(self, tensor: str) -> str:
        """This iteration's slice of a stack."""
        slice = self.stacks[tensor].slice
        if slice is None:
            raise Unsuitable("a slice is not written in every iteration")
        return slice

    def _arm(self, steps: Sequence[OrderedStep]) -> _Scope:
        stacks = {name: replace(stack) for name, stack in self.stacks.items()}
        arm = _Scope(self.work, self.box, self.constants, dict(self.current), stacks)
        arm.run(steps)
        return arm

    # ---- graphs ----

    def outside(self, results: Iterable[str]) -> list[str]:
        """Values from enclosing scopes, without constants, in order of first use."""
        names = [n for node in self.nodes for n in node.given] + list(results)
        found = dict.fromkeys(names)
        return [n for n in found if n not in self.made and n not in self.constants]

    def graph(self, results: Sequence[str], given: Sequence[str]) -> Graph:
        """The graph of this scope; results that it does not define are copied."""
        outputs: list[str] = []
        for result in results:
            if result not in self.made or result in outputs:
                copy = self.work.fresh("copy", self.work.types[result])
                self.add(self.work.node("identity", (result,), (copy,)))
                result = copy
            outputs.append(result)
        used = dict.fromkeys(n for node in self.nodes for n in node.given)
        names = dict.fromkeys((*given, *used, *sorted(self.made)))
        return Graph(
            self.work.origin.operator,
            self.box,
            FrozenMapping({name: self.work.types[name] for name in names}),
            tuple(given),
            tuple(outputs),
            FrozenMapping({n: self.constants[n] for n in used if n in self.constants}),
            tuple(self.nodes),
        )

    # ---- loops ----

    def loop(self, step: Loop) -> None:
        if self.stacks or any(isinstance(inner, Loop) for inner in step.body):
            raise Unsuitable("nested loops")
        start, stop = _size(step.start), _size(step.stop)
        span = stop - start if step.step > 0 else start - stop
        trips = ceil_div(span, abs(step.step))
        if prove(trips, ">=", 0, self.box) is not Truth.PROVED:
            trips = maximum(trips, 0)
        counter = unique_name(step.variable, self.box.names)
        value = start + Size.symbol(counter) * step.step
        body = rename_steps(step.body, {}, {step.variable: value})
        stacks = self._stacks(body, counter)
        tensors = self.work.tensors
        constants = frozenset(t for t, value in self.current.items() if value in self.constants)
        hoist = Hoist(tensors, constants, self.work.machine, self.work.transposed)
        body = hoist.run(body, counter, trips)
        self.run(hoist.before)
        written = dict.fromkeys(inner.target for inner in writes(body))
        carried = [t for t in written if t not in stacks and t in self.current]
        inner = _Scope(self.work, self._inside(counter, trips), self.constants)
        inner.current = {t: value for t, value in self.current.items() if t not in written}
        formal = [self.work.fresh(f"{t}.before", tensors[t]) for t in carried]
        inner.current.update(zip(carried, formal))
        inner.stacks = stacks
        inner.run(body)
        self._close(inner, dict(zip(carried, formal)), counter, trips)

    def _stacks(self, body: Iterable[OrderedStep], counter: str) -> dict[str, _Stack]:
        """The tensors of which each iteration writes a slice."""
        found: dict[str, list[Statement | Write]] = {}
        for step in writes(body):
            found.setdefault(step.target, []).append(step)
        stacks = {}
        for tensor, steps in found.items():
            position = _position(steps, counter)
            if position is not None:
                whole = self.work.fresh(f"{tensor}.stack", self.work.tensors[tensor])
                stacks[tensor] = _Stack(position, whole)
        return stacks

    def _inside(self, counter: str, trips: Size) -> Box:
        """The box inside the loop, with the counter as a dim."""
        limit = trips - 1 - Size.symbol(counter)
        dims = (*self.box.dims, Dim(counter))
        return Box.of(*dims, constraints=(*self.box.constraints, limit))

    def _close(self, inner: _Scope, carried: dict[str, str], counter: str, trips: Size) -> None:
        """Add the `loop` node of a converted body."""
        stacks, types = inner.stacks, self.work.types
        results = [inner.current[t] for t in carried] + [inner.written_slice(t) for t in stacks]
        outside = inner.outside(results)
        wholes = [stack.whole for stack in stacks.values()]
        histories = [whole for whole in wholes if whole in outside]
        given = [n for n in outside if n not in wholes and n not in carried.values()]
        first = {t: self.current[t] for t in stacks if t in self.current}
        scans = tuple(
            regions.Scan(
                stack.position, self.work.tensors[tensor].shape[0],
                stack.whole in histories, tensor in first,
            )
            for tensor, stack in stacks.items()
        )  # fmt: skip
        body = inner.graph(results, [*carried.values(), *histories, *given])
        region = regions.LoopRegion(body, counter, trips, False, len(carried), scans)
        names = [self.work.fresh(t, types[value]) for t, value in carried.items()]
        names += [self.work.fresh(t, self.work.tensors[t]) for t in stacks]
        inputs = [*(self.current[t] for t in carried), *first.values(), *given]
        self.add(self.work.node(regions.LOOP, inputs, names, region))
        self.current.update(zip((*carried, *stacks), names))


def _in_order(indices: Sequence[Expr], axes: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes in the order of `indices`, if these are the axes, each once; else None."""
    by_name = {axis.name: axis for axis in axes}
    names = [index.name if isinstance(index, Index) else "" for index in indices]
    if sorted(names) != sorted(by_name):
        return None
    return tuple(by_name[name] for name in names)


def _size(expr: Expr) -> Size:
    form = affine(expr)
    if form is None or form.terms:
        raise Unsuitable("the trip count depends on data")
    return form.constant


def _relation(condition: Expr) -> Guard:
    """A condition on sizes as a guard."""
    if isinstance(condition, Apply) and len(condition.arguments) == 2:
        function, (left, right) = condition.function, condition.arguments
        if function in _MIRRORED:
            function, left, right = _MIRRORED[function], right, left
        first, second = affine(left), affine(right)
        if function in _RELATIONS and first is not None and second is not None:
            if not first.terms and not second.terms:
                return Guard(first.constant, _RELATIONS[function], second.constant, "a branch")
    raise Unsuitable("a branch depends on data")


def _position(steps: Sequence[Statement | Write], counter: str) -> Size | None:
    """Index of the slice that an iteration writes; None if it writes whole tensors."""
    positions: set[Size | None] = set()
    for step in steps:
        if isinstance(step, Write) and step.indices and not isinstance(step.indices[0], Index):
            form = affine(step.indices[0])
            if form is None or form.terms:
                raise Unsuitable("the index of a slice depends on data")
            positions.add(form.constant)
        else:
            positions.add(None)
    if len(positions) != 1:
        raise Unsuitable("several slices in one iteration")
    (position,) = positions
    if position is not None and counter not in position.symbols:
        raise Unsuitable("every iteration writes the same slice")
    return position
