"""Promise: structures in every form become the same arrays, and a wrong one is named."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.compiler.graph.evaluate import evaluate
from anydim.runtime.forest import Schema, solve_dims
from anydim.runtime.lists import FieldPort, StructurePort
from anydim.runtime.signature import TensorSpec
from anydim.runtime.structure_inputs import Forests
from anydim.runtime.structures import read
from anydim.sizes import as_size
from tests.unit.runtime import forests
from tests.unit.runtime.forests import BUSH, KINDS, LIST, PARITY, ROSE, TREE, same

A, B, C = (numpy.arange(3, dtype=numpy.float32) + 10 * n for n in range(3))
LEAF = ("leaf", A)
FORK = ("node", LEAF, ("node", LEAF, ("leaf", B)))


def arrays(given: Any, port: StructurePort) -> dict[str, Any]:
    """The arrays of a structure as lists."""
    made = ad.Structure.of(given, port)
    return {name: array.tolist() for name, array in read(Schema(port), made)[0].items()}


# ---- nested values -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_nested_values_come_back(kind: str, seed: int) -> None:
    port, draw = KINDS[kind]
    random = Random(f"{kind}{seed}")
    trees = [draw(random) for _ in range(random.randrange(1, 6))]
    made = ad.Structure.of(trees, port)
    assert len(made) == len(trees)
    assert all(same(made.nested(row), tree) for row, tree in enumerate(trees))
    again = ad.Structure.of([made.nested(row) for row in range(len(made))], port)
    assert repr(again) == repr(made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_other_numberings_come_back(kind: str, seed: int) -> None:
    """The same forest from nodes in preorder, and, if no node is shared, from their parents."""
    port, draw = KINDS[kind]
    random = Random(f"{kind}{seed}")
    trees = [draw(random) for _ in range(random.randrange(1, 6))]
    nodes = forests.preorder(trees)
    kinds = [name for name, _, _ in nodes]
    most = max(len(children) for _, children, _ in nodes)
    rows = [children + [-1] * (most - len(children)) for _, children, _ in nodes]
    table = numpy.array(rows, numpy.int32).reshape(len(nodes), most)
    fields: dict[str, dict[str, list[Any]]] = {}
    for name, _, values in nodes:
        for field, value in zip(("x", "head")[kind == "list" :], values):
            fields.setdefault(name, {}).setdefault(field, []).append(value)
    made = ad.Structure.from_kinds(kinds, table, fields, declared=port)
    assert all(same(made.nested(row), tree) for row, tree in enumerate(trees))
    parents = numpy.full(len(nodes), -1)
    for number, row in enumerate(table):
        parents[row[row >= 0]] = number
    for given in (None, kinds):
        made = ad.Structure.from_parents(parents, fields, given, declared=port)
        assert all(same(made.nested(row), tree) for row, tree in enumerate(trees))


def test_nodes_are_numbered_constructor_after_constructor() -> None:
    found = arrays([FORK, ("leaf", C)], TREE)
    assert found["t"] == [3, 0]  # three leaves, then two nodes
    assert found["t.x"] == [C.tolist(), A.tolist(), B.tolist()]
    assert (found["t.left"], found["t.right"]) == ([1, 1], [4, 2])


def test_an_object_is_one_node_and_nil_is_one() -> None:
    shared = ("cons", 1.0, "nil")
    found = arrays([shared, ("cons", 2.0, shared), ("nil",), "nil"], LIST)
    assert found["t"] == [1, 2, 0, 0]
    assert (found["t.head"], found["t.tail"]) == ([1.0, 2.0], [0, 1])
    back = ad.Structure.of(("node", LEAF, LEAF), TREE).nested()
    assert back[1] is back[2]


def test_lists_of_structures_have_offsets() -> None:
    found = arrays(("bush", A, [("bush", B, []), ("bush", C, [])]), BUSH)
    assert (found["t.offsets"], found["t.children"]) == ([0, 2, 2, 2], [1, 2])


def test_types_that_refer_to_each_other() -> None:
    value = ("more", ("more", 1.0, ("more", ("more", 2.0, "end"))))
    made = ad.Structure.of(value, PARITY)
    assert same(made.nested(), value)
    assert repr(made) == "<structure: 1 tree; nodes: 1 Even.end, 2 Even.more, 2 Odd.more>"


def test_a_chain_of_100_000_nodes() -> None:
    value: Any = ("nil",)
    for number in range(100_000):
        value = ("cons", float(number), value)
    made = ad.Structure.of([value], LIST)
    assert read(Schema(LIST), made)[0]["t.head"][0] == 99_999
    assert same(made.nested(), value)
    comb: Any = LEAF
    for _ in range(100_000):
        comb = ("node", ("leaf", B), comb)
    assert repr(ad.Structure.of(comb, TREE)) == (
        "<structure: 1 tree; nodes: 100001 leaf, 100000 node>"
    )


@pytest.mark.parametrize("kind", ["chain", "balanced", "wide"])
def test_time_per_node(kind: str) -> None:
    """Prints microseconds per node; the shape of the structure does not matter."""
    for count in (1_000, 10_000, 100_000):
        value: Any = LEAF
        if kind == "chain":
            for _ in range(count // 2):
                value = ("node", ("leaf", B), value)
        elif kind == "wide":
            value = ("bush", A, [("bush", B, []) for _ in range(count)])
        else:
            row: list[Any] = [("leaf", A) for _ in range(1 << count.bit_length() - 2)]
            while len(row) > 1:
                row = list(map(lambda *pair: ("node", *pair), row[::2], row[1::2]))
            (value,) = row
        start = time.perf_counter()
        made = ad.Structure.of(value, BUSH if kind == "wide" else TREE)
        each = (time.perf_counter() - start) / count * 1e6
        print(f"{kind:10} {count:7} nodes: {each:5.2f} us per node  {made}")


# ---- arrays --------------------------------------------------------------------------------------

LEAVES = numpy.stack([A, B, C])
FIELDS = {"leaf": {"x": LEAVES}, "node": {"left": [0, 3], "right": [1, 2]}}
EXPECTED = ("node", ("node", ("leaf", A), ("leaf", B)), ("leaf", C))


def test_arrays_of_the_program_are_not_copied() -> None:
    left, right = numpy.array([0, 3]), numpy.array([1, 2])
    roots = numpy.array([4])
    fields = {"leaf": {"x": LEAVES}, "node": {"left": left, "right": right}}
    made = ad.Structure(fields, roots)
    found = read(Schema(TREE), made)[0]
    assert found["t.x"] is LEAVES and found["t.left"] is left and found["t"].base is roots
    assert repr(made) == "<structure: 1 tree; nodes: 3 leaf, 2 node>"
    assert same(ad.Structure(fields, roots, TREE).nested(), EXPECTED)


def test_kinds_and_parents() -> None:
    kinds = ["node", "node", "leaf", "leaf", "leaf"]
    children = [[1, 4], [2, 3], [-1, -1], [-1, -1], [-1, -1]]
    data = {"leaf": {"x": LEAVES}}
    for given in (kinds, [1, 1, 0, 0, 0]):
        made = ad.Structure.from_kinds(given, children, data, declared=TREE)
        assert same(made.nested(), EXPECTED)
    made = ad.Structure.from_parents([-1, 0, 1, 1, 0], data, declared=TREE)
    assert same(made.nested(), EXPECTED)
    x = numpy.arange(15, dtype=numpy.float32).reshape(5, 3)
    made = ad.Structure.from_parents([-1, 0, 0, 2, -1], {"bush": {"x": x}}, declared=BUSH)
    inner = [("bush", x[1], []), ("bush", x[2], [("bush", x[3], [])])]
    assert same(made.nested(0), ("bush", x[0], inner)) and same(made.nested(1), ("bush", x[4], []))


def test_kinds_of_several_types() -> None:
    kinds = ["Even.more", "Odd.more", "end", "Odd.more"]
    made = ad.Structure.from_kinds(
        kinds, [[1], [2], [-1], [0]], {"Odd.more": {"x": [5.0, 7.0]}}, roots=[0], declared=PARITY
    )
    assert same(made.nested(), ("more", ("more", 5.0, "end")))


def test_a_list_between_fields_of_one_structure() -> None:
    fields = (
        FieldPort("first", "t.a", "T"), FieldPort("inner", "t.b", "T", (), "t.o"),
        FieldPort("last", "t.c", "T"),
    )  # fmt: skip
    mixed = forests.port("T", end=(), more=fields)
    children = [[1, 2, 3, 4], [2, 3, -1, -1], *[[-1] * 4] * 3]
    kinds = ["more", "more", "end", "end", "end"]
    made = ad.Structure.from_kinds(kinds, children, {}, declared=mixed)
    end = ("end",)
    second = ("more", end, [], end)
    assert same(made.nested(), ("more", second, [end, end], end))


class _Digraph:
    """The part of a directed graph of networkx that is read."""

    def __init__(self, nodes: dict[Any, dict[str, Any]], edges: list[tuple[Any, Any]]) -> None:
        self._nodes, self._edges = nodes, edges

    def is_directed(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(self._nodes)

    def edges(self) -> Any:
        return iter(self._edges)

    def nodes(self, data: str) -> Any:
        return [(node, facts.get(data)) for node, facts in self._nodes.items()]


def test_graphs_of_networkx() -> None:
    facts = {"c": {"x": C}, "top": {}, "inner": {}, "a": {"x": A}, "b": {"x": B}}
    edges = [("inner", "a"), ("inner", "b"), ("top", "inner"), ("top", "c")]
    graph = _Digraph(facts, edges)
    assert same(ad.Structure.from_networkx(graph, declared=TREE).nested(), EXPECTED)
    named = _Digraph({n: {"kind": "leaf" if f else "node", "v": f.get("x")}
                      for n, f in facts.items()}, edges)  # fmt: skip
    made = ad.Structure.from_networkx(named, {"x": "v"}, declared=TREE)
    assert same(made.nested(), EXPECTED)
    del facts["b"]["x"]
    with pytest.raises(ad.InputError, match="node 'b': attribute 'x' is missing"):
        ad.Structure.from_networkx(graph, declared=TREE)


def test_networkx_itself() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_edges_from([("top", "inner"), ("inner", "a"), ("inner", "b"), ("top", "c")])
    for name, x in zip("abc", LEAVES):
        graph.nodes[name]["x"] = x
    assert same(ad.Structure.of(graph, TREE).nested(), EXPECTED)
    with pytest.raises(ad.InputError, match="not directed"):
        ad.Structure.of(graph.to_undirected(), TREE)


class _ListArray:
    """A list array in the layout of Arrow."""

    def __init__(self, offsets: list[int], values: Any) -> None:
        self.offsets, self.values = numpy.array(offsets), values

    def __len__(self) -> int:
        return len(self.offsets) - 1


def test_nested_lists_of_arrow() -> None:
    held = numpy.arange(6, dtype=numpy.float32)
    given = _ListArray([0, 2, 2, 3], _ListArray([0, 1, 4, 6], held))
    made = ad.Structure.of(given, ROSE)
    leaves = [("leaf", value) for value in held]
    first = ("branch", [("branch", leaves[:1]), ("branch", leaves[1:4])])
    assert same(made.nested(0), first) and same(made.nested(1), ("branch", []))
    assert same(made.nested(2), ("branch", [("branch", leaves[4:])]))
    given = _ListArray([1, 3], _ListArray([0, 1, 4, 6], held))  # a slice
    made = ad.Structure.of(given, ROSE)
    assert same(made.nested(), ("branch", [("branch", leaves[1:4]), ("branch", leaves[4:])]))
    with pytest.raises(ad.InputError, match="nested lists need a constructor"):
        ad.Structure.of(given, TREE)
    given.null_count = 2
    with pytest.raises(ad.InputError, match="the array has 2 nulls"):
        ad.Structure.of(given, ROSE)
    with pytest.raises(ad.InputError, match="offsets of lists end with 3, of 1 value"):
        ad.Structure.of(_ListArray([0, 3], _ListArray([0, 6], held)), ROSE)


@pytest.mark.parametrize("kind", KINDS)
def test_concat(kind: str) -> None:
    port, draw = KINDS[kind]
    random = Random(kind)
    trees = [draw(random) for _ in range(9)]
    parts = [ad.Structure.of(trees[a:b], port) for a, b in ((0, 3), (3, 3), (3, 4), (4, 9))]
    made = ad.Structure.concat(parts)
    assert len(made) == 9
    assert all(same(made.nested(row), tree) for row, tree in enumerate(trees))
    assert read(Schema(port), made)[0].keys() == read(Schema(port), parts[0])[0].keys()


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "port", "problem"),
    [
        (("nod", LEAF, LEAF), TREE, r"tree 0, node 0 \('nod'\): Tree has no constructor 'nod'"
                                    r"\n  did you mean 'node'\?"),
        ([LEAF, ("node", LEAF)], TREE, r"tree 1, node 0 \('node'\): got 1 field, expected 2"),
        (("leaf", A, A), TREE, r"node 0 \('leaf'\): got 2 fields, expected 1\n  write \(.leaf., x"),
        ("leaf", TREE, "got 0 fields, expected 1"),
        ("nul", LIST, "did you mean 'nil'"),
        (("node", LEAF, A), TREE, r"field 'right': got a tensor of shape \[3\], expected a Tree"),
        (A, TREE, r"got a tensor of shape \[3\], expected a Tree, or a list"),
        (None, TREE, "got NoneType None, expected a Tree"),
        ([[LEAF]], TREE, "tree 0: got list .*, expected a Tree"),
        ([()], TREE, "tree 0, node 0: Tree has no constructor"),
        (("bush", A, ("bush", B, [])), BUSH, "field 'children' is tuple .*expected a list of Bush"),
        ([LEAF, ("node", LEAF, ("leaf", A[:2]))], TREE,
         r"tree 1, node 1 \('leaf'\): field 'x' is float32 \[2\], in another node float32 \[3\]"),
        (("node", LEAF, ("leaf", A[None])), TREE, r"field 'x' is float32 \[1, 3\], expected \[D\]"),
        (("leaf", "abc"), TREE, r"field 'x' is 'abc', expected a tensor"),
        (("leaf", numpy.ma.array(A, mask=[0, 1, 0])), TREE, "is a masked array, expected a plain"),
        (("leaf", object()), TREE, "field 'x' is <object.*expected a tensor"),
    ],
)  # fmt: skip
def test_nested_values_that_do_not_fit(given: Any, port: StructurePort, problem: str) -> None:
    with pytest.raises(ad.InputError, match=problem):
        ad.Structure.of(given, port)


def test_a_list_that_contains_itself() -> None:
    inner: list[Any] = []
    inner.append(("bush", A, inner))
    with pytest.raises(ad.InputError, match=r"contains itself, node 0 \('bush'\), over 1 node"):
        ad.Structure.of(inner, BUSH)
    inner[:] = [inner]
    with pytest.raises(ad.InputError, match=r"tree 0: got list .*, expected a Bush"):
        ad.Structure.of(inner, BUSH)


NODE = FIELDS["node"]


@pytest.mark.parametrize(
    ("fields", "roots", "problem"),
    [
        ({**FIELDS, "node": {**NODE, "right": [1, 9]}}, [0, 4],
         r"tree 1, node 4 \('node'\): field 'right' refers to node 9 of 5"),
        ({**FIELDS, "node": {**NODE, "right": [-1, 2]}}, [4], "refers to node -1 of 5"),
        ({**FIELDS, "node": {**NODE, "right": [1]}}, [4],
         "'node' has 2 nodes in field 'left', and 1 in field 'right'"),
        ({**FIELDS, "node": {"left": [0, 3]}}, [4], "field 'right' of 'node' is missing"),
        ({**FIELDS, "node": {**NODE, "rigth": [0]}}, [4], "no field 'rigth'\n.*'right'"),
        ({"leaf": FIELDS["leaf"], "nod": NODE}, [4], "no constructor 'nod'\n  did you mean 'node'"),
        ({**FIELDS, "node": {**NODE, "right": [1.0, 2.0]}}, [4], "is float64 .*expected integers"),
        (FIELDS, [5], "tree 0: its root is node 5 of 5"),
        (FIELDS, None, "needs `roots`"),
        (FIELDS, [4.0], "roots is float64"),
        ({**FIELDS, "leaf": {"x": LEAVES.astype(str)}}, [4], "expected numbers"),
        ({**FIELDS, "leaf": {"x": A}}, [4], r"has shape \[3\], expected \[nodes, D\]"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(fields: Any, roots: Any, problem: str) -> None:
    with pytest.raises(ad.InputError, match=problem):
        ad.Structure(fields, roots, TREE)


@pytest.mark.parametrize(
    ("children", "offsets", "problem"),
    [
        ([1, 2], [0, 2, 1, 2], "node 1: offsets .* fall from 2 to 1"),
        ([1, 2], [0, 2, 2, 3], "start with 0 and end with 3\n.*from 0 to 2"),
        ([1, 2], [0, 2, 2], "'bush' has 3 nodes in field 'x', and 2 in field 'children'"),
        ([1, 3], [0, 2, 2, 2], r"tree 0, node 0 \('bush'\): field 'children' refers to node 3 of"),
    ],
)
def test_offsets_that_do_not_fit(children: Any, offsets: Any, problem: str) -> None:
    with pytest.raises(ad.InputError, match=problem):
        ad.Structure({"bush": {"x": LEAVES, "children": (children, offsets)}}, [0], BUSH)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ad.Structure.from_kinds(["leaf"], [[7]], {}), "children refer to 7 of 1 node"),
        (lambda: ad.Structure.from_kinds(["leaf"], [[-1], [-1]], {}), "one row of children per"),
        (lambda: ad.Structure.from_kinds(["node", "leaf"], [[1], [-1]], {}, declared=TREE),
         r"node 0 \('node'\): has 1 child, expected 2"),
        (lambda: ad.Structure.from_kinds([2], [[-1]], {}, declared=TREE), "refer to 2 of 2"),
        (lambda: ad.Structure.from_parents([-1, 0], {"leaf": {"x": LEAVES}}, declared=TREE),
         "node 0: no constructor has 1 structures"),
        (lambda: ad.Structure.from_parents([-1, 0, 0], {"leaf": {"x": LEAVES}}, declared=TREE),
         "has 3 values, and 2 nodes"),
        (lambda: ad.Structure(FIELDS, [4]).nested(), "its declaration is not known"),
        (lambda: ad.Structure({"more": {}}, [0], PARITY), "'Even', 'Odd' have a constructor"),
        (lambda: ad.Structure.from_kinds(["Odd.more"], [[0]], {"Odd.more": {"x": [1.0]}}, [0],
                                         declared=PARITY), "refer to node 0, an Odd, expected an"),
    ],
)  # fmt: skip
def test_numberings_that_do_not_fit(make: Any, problem: str) -> None:
    with pytest.raises(ad.InputError, match=problem):
        make()


def made_of_edges(make: str, count: int, edges: list[tuple[int, int]]) -> ad.Structure:
    """A structure from edges to children, in one of the forms that have no roots of their own."""
    if make == "parents":
        parents = numpy.full(count, -1)
        for node, child in edges:
            parents[child] = node
        return ad.Structure.from_parents(parents, {})
    if make == "networkx":
        return ad.Structure.from_networkx(_Digraph({n: {} for n in range(count)}, edges))
    rows = [[child for node, child in edges if node == number] for number in range(count)]
    most = max(map(len, rows))
    table = numpy.array([row + [-1] * (most - len(row)) for row in rows]).reshape(count, most)
    return ad.Structure.from_kinds([0] * count, table, {})


@pytest.mark.parametrize("make", ["parents", "kinds", "networkx"])
@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ([-1, 2, 1], "no root reaches node 1, which contains itself, over 2 nodes"),
        ([1, 2, 0], "no root reaches node 0, which contains itself, over 3 nodes"),
        ([0], "no root reaches node 0, which contains itself, over 1 node"),
        ([-1, 3, 1, 2, 2, 4, 0], "no root reaches node 1, which contains itself, over 3 nodes"),
    ],
)
def test_cycles_that_no_root_reaches(make: str, parents: list[int], problem: str) -> None:
    edges = [(above, node) for node, above in enumerate(parents) if above >= 0]
    with pytest.raises(ad.InputError, match=problem):
        made_of_edges(make, len(parents), edges)


@pytest.mark.parametrize("make", ["parents", "kinds", "networkx"])
@pytest.mark.parametrize("seed", range(40))
def test_every_node_is_in_a_tree_or_an_error_names_it(make: str, seed: int) -> None:
    random = Random(f"{make}{seed}")
    count, most = random.randrange(1, 12), 1 if make == "parents" else 3
    edges = [
        (random.randrange(count), child)
        for child in range(count) for _ in range(random.randrange(most + 1))
    ]  # fmt: skip
    reached = set(range(count)) - {child for _, child in edges}
    for _ in range(count):
        reached |= {child for node, child in edges if node in reached}
    if len(reached) == count:
        roots = made_of_edges(make, count, edges).roots.tolist()
        assert roots == sorted(set(range(count)) - {child for _, child in edges})
        return
    with pytest.raises(ad.InputError, match="no root reaches node") as caught:
        made_of_edges(make, count, edges)
    assert int(caught.value.problem.split("node ")[1].split(",")[0]) not in reached


def test_a_long_list_and_what_given_roots_leave_out() -> None:
    count = 100_000
    assert len(ad.Structure.from_parents(numpy.arange(count) - 1, {})) == 1
    assert len(ad.Structure.from_parents([], {})) == 0
    made = ad.Structure.from_kinds(["leaf", "node", "node"], [[-1, -1], [2, 2], [1, 1]],
                                   {"leaf": {"x": LEAVES[:1]}}, 0, declared=TREE)  # fmt: skip
    assert same(made.nested(), ("leaf", LEAVES[0]))


def test_nested_of_a_cycle() -> None:
    fields = {"leaf": {"x": LEAVES}, "node": {"left": [4, 3], "right": [1, 2]}}
    made = ad.Structure(fields, [4], TREE)
    with pytest.raises(ad.InputError, match="contains itself"):
        made.nested()


# ---- programs ------------------------------------------------------------------------------------

W = numpy.ones(3, numpy.float32)


@pytest.fixture(scope="module")
def model() -> ad.Model:
    return ad.compile(forests.program())


def both(model: ad.Model, **given: Any) -> dict[str, Any]:
    """The results of a call, equal to those of the evaluator."""
    found = model(**given)
    expected = evaluate(forests.program(), given)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        numpy.testing.assert_allclose(value, expected[name], 1e-5)
    return found


def test_a_program_takes_forests(model: ad.Model) -> None:
    assert model.input_names() == ["t", "w"]
    found = both(model, t=[FORK, ("leaf", C)], w=W)
    assert found["ids"].tolist() == [3, 0]
    numpy.testing.assert_array_equal(found["y"], [A + B + C + 12, A + B + C + 9])
    made = ad.Structure(FIELDS, [4, 0, 4])
    assert both(model, t=made, w=W)["ids"].tolist() == [4, 0, 4]
    assert both(model, t=[made, made], w=W)["ids"].tolist() == [7, 0, 7, 9, 3, 9]


def test_a_single_structure_has_no_axis_of_trees(model: ad.Model) -> None:
    for given in (FORK, ad.Structure(FIELDS, 4), ad.Structure.of(FORK, TREE)):
        found = both(model, t=given, w=W)
        assert found["ids"].shape == () and found["y"].shape == (3,)
    assert both(model, t=[FORK], w=W)["y"].shape == (1, 3)


def test_forests_without_nodes(model: ad.Model) -> None:
    """Fields without nodes have the sizes of other inputs."""
    assert both(model, t=[], w=W)["y"].shape == (0, 3)
    assert both(model, t=LEAF, w=W)["ids"] == 0
    empty = ad.Structure({}, numpy.zeros(0, numpy.int64))
    for given in (empty, ad.Structure.concat([]), ad.Structure.concat([empty, empty])):
        assert both(model, t=given, w=W[:1])["y"].shape == (0, 1)


def test_a_dim_that_only_empty_fields_have_is_its_lower_bound() -> None:
    for low in (0, 2):
        graph = forests.program(low)
        kinds = {name: graph.types[name] for name in graph.inputs if name != "w"}
        specs = {name: TensorSpec(name, kind.dtype, kind.shape) for name, kind in kinds.items()}
        packed, _ = Forests("f", graph.lists, specs, graph.box).pack({"t": []})
        assert packed["t.x"].shape == (0, low)


def test_inputs_that_do_not_agree(model: ad.Model) -> None:
    with pytest.raises(ad.DimError, match="dim 'D' is 3 in field 'x' of 'leaf', and 2 in input 'w"):
        model(t=FORK, w=W[:2])
    with pytest.raises(ad.InputError, match=r"summed: input 't', tree 0.*is float64.*float32"):
        model(t=("leaf", A.astype(numpy.float64)), w=W)
    with pytest.raises(ad.InputError, match="'leaf' is float64, expected float32\n  convert it"):
        model(t=ad.Structure({"leaf": {"x": LEAVES.astype(numpy.float64)}}, [0]), w=W)
    with pytest.raises(ad.InputError, match="input 't' is missing"):
        model(w=W)
    with pytest.raises(ad.OptionError, match="has structures"):
        model(t=FORK, w=W, out=W)


def test_arrays_of_another_byte_order_and_layout(model: ad.Model) -> None:
    expected = both(model, t=ad.Structure(FIELDS, [4]), w=W)["y"]
    for x in (LEAVES.astype(">f4"), numpy.asfortranarray(LEAVES)):
        fields = {"leaf": {"x": x}, "node": {n: numpy.array(i, ">i2") for n, i in NODE.items()}}
        numpy.testing.assert_array_equal(model(t=ad.Structure(fields, [4]), w=W)["y"], expected)
    swapped = ("node", ("leaf", A.astype(">f4")), ("leaf", B.astype(">f4")))
    assert both(model, t=[swapped], w=W)["y"].shape == (1, 3)


def test_numbers_and_lists_take_the_declared_type(model: ad.Model) -> None:
    found = both(model, t=("node", ("leaf", [1, 2, 3]), ("leaf", [1.5, 2, 3])), w=W)
    assert found["y"].tolist() == [6.5, 8.0, 10.0]  # root 2, children 0 + 1
    fields = {"leaf": {"x": [[1, 2, 3]]}, "node": {"left": [0], "right": [0]}}
    for declared in (None, TREE):
        made = ad.Structure(fields, [1], declared)
        assert both(model, t=[made, made], w=W)["y"].shape == (2, 3)
    early = ad.Structure.of(("leaf", [1, 2, 3]), model.lists["t"])
    assert both(model, t=early, w=W)["y"].tolist() == [2.0, 3.0, 4.0]


def test_reports_take_forests(model: ad.Model) -> None:
    sizes = {"trees": 1, "leaves": 2, "nodes": 2, "D": 3}
    assert model.plan(t=FORK, D=3).bytes == model.plan(**sizes).bytes
    assert model.plan(t=LEAF, D=3).bytes == model.plan(**{**sizes, "leaves": 1, "nodes": 0}).bytes
    assert model.plan(t=[], D=3).bytes == model.plan(trees=0, leaves=0, nodes=0, D=3).bytes
    assert model.plan(t=ad.Structure.of([FORK] * 9, TREE)).bytes
    assert "launch" in str(model.profile({"t": FORK, "w": W}, repeat=1))
    with pytest.raises(ad.OptionError, match="takes structures, and `profile` draws arrays"):
        model.profile(D=3)
    with pytest.raises(ad.OptionError, match="takes structures, and `check` draws arrays"):
        model.check()
    with pytest.raises(ad.OptionError, match="call it with a list of structures"):
        model.map([FORK])


def test_a_saved_program_takes_structures(model: ad.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "summed.anydim")
    loaded = ad.load(tmp_path / "summed.anydim")
    assert loaded.lists == model.lists and loaded.input_names() == ["t", "w"]
    numpy.testing.assert_array_equal(loaded(t=FORK, w=W)["y"], model(t=FORK, w=W)["y"])


def test_sizes_of_dims_in_compound_axes() -> None:
    n, m = as_size("n"), as_size("m")
    assert solve_dims([(n * 2 + m, 11), (m, 3), (as_size(4), 4)]) == {"m": 3, "n": 4}
