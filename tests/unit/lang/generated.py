"""Random programs of the language, as surface trees that mean something."""

from hypothesis import strategies as st

from anydim.lang.surface.syntax import (
    Assignment,
    Attribute,
    CallTerm,
    Convert,
    Count,
    Definition,
    Dimension,
    Flat,
    Name,
    Number,
    Operation,
    Parameter,
    Range,
    Spread,
)

HEAD = (
    Parameter("a", "T", (Name("N"), Name("M"))),
    Parameter("b", "T", (Name("M"),)),
    Parameter("ids", "int64", (Name("N"),)),
    Parameter("s", "T"),
    Parameter("e", "T", (Spread("q"), Name("M"))),
)
ATTRIBUTES = (
    Attribute("alpha", "float", 0.5),
    Attribute("k", "int", -2),
    Attribute("on", "bool", True),
    Attribute("R", "type", "float64"),
)
NAMES = [Name(name) for name in ("i", "j", "N", "M", "k", "alpha", "s", "on")]

indices = st.recursive(
    st.sampled_from([Name("i"), Name("j"), Name("k"), Number(1), Number(3), Name("M")]),
    lambda inner: st.one_of(
        st.builds(
            lambda f, a, b: Operation(f, (a, b)), st.sampled_from(["add", "sub"]), inner, inner
        ),
        st.builds(
            lambda f, a, n: Operation(f, (a, Number(n))),
            st.sampled_from(["mul", "floordiv", "mod"]), inner, st.integers(1, 3),
        ),
        st.builds(lambda i: CallTerm("ids", (i,), Number(0)), inner),
    ),
    max_leaves=4,
)  # fmt: skip

reads = st.one_of(
    st.just(CallTerm("a", (Name("i"), Name("j")))),
    st.just(CallTerm("b", (Name("j"),))),
    st.just(CallTerm("e", (Spread("q"), Name("j")))),
    st.builds(lambda i, j, d: CallTerm("a", (i, j), d), indices, indices, st.just(Number(0))),
    st.builds(lambda i: Flat("a", i, Name("alpha")), indices),
    st.builds(lambda i: CallTerm("b", (i,), Operation("neg", (Number(0.5),))), indices),
)

leaves = st.one_of(
    reads,
    st.sampled_from(NAMES),
    st.builds(Number, st.sampled_from([0, 1, 7, 0.5, 2.0, 1e-5, 1e20, True, False])),
    st.sampled_from([Dimension("a", 1), Dimension("e", 0), Count("q")]),
)


def _grown(inner):
    def operation(*functions):
        return st.builds(
            lambda f, a, b: Operation(f, (a, b)), st.sampled_from(functions), inner, inner
        )

    return st.one_of(
        operation("add", "sub", "mul"),
        operation("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        operation("and", "or", "bit_and", "bit_or", "bit_xor"),
        st.builds(lambda f, a: Operation(f, (a,)), st.sampled_from(["neg", "not"]), inner),
        st.builds(lambda a, b, c: Operation("select", (a, b, c)), inner, inner, inner),
        st.builds(lambda f, a: CallTerm(f, (a,)), st.sampled_from(["abs", "tanh", "float"]), inner),
        st.builds(
            lambda f, a, b: CallTerm(f, (a, b)),
            st.sampled_from(["max", "min", "fmax"]),
            inner,
            inner,
        ),
        st.builds(Convert, st.sampled_from(["float", "T", "R", "int32", "bool"]), inner),
    )


expressions = st.recursive(leaves, _grown, max_leaves=8)

RANGES = (Range("i", Number(0), Name("N")), Range("j", Number(0), Name("M")))
SHIFTED = (Range("i", Number(1), Operation("add", (Name("N"), Number(1)))), RANGES[1])
TRIANGLE = (RANGES[0], Range("j", Number(0), Operation("add", (Name("i"), Number(1)))))

statements = st.one_of(
    st.builds(
        lambda value, where: Assignment(
            "y", (Spread("q"), Name("j"), Name("i")), "", False, value, where
        ),
        expressions, st.sampled_from([RANGES, SHIFTED]),
    ),
    st.builds(
        lambda combine, value, where: Assignment("y", (Name("i"),), combine, True, value, where),
        st.sampled_from(["add", "min", "max"]), expressions,
        st.sampled_from([RANGES, SHIFTED, TRIANGLE]),
    ),
)  # fmt: skip

programs = st.builds(
    lambda statement: Definition("f", HEAD, ATTRIBUTES, ("y",), (statement,)), statements
)
