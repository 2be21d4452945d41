"""One element at a time: functions, arithmetic, conversions; with and without broadcast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from bench.cliffs.family import Family, Peer, at, typed

FLAT = at("n", (1,), (17,), (1000,), (30001,), (1000000,))
PAIRS = at(
    "n m", (1, 1), (7, 15), (1, 1000), (1000, 1), (2000, 3), (3, 2001), (300, 300), (1000, 1000)
)
FUNCTIONS = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Identity",
    "IsNaN",
    "IsInf",
]
NUMPY: dict[str, Peer] = {
    "Add": numpy.add,
    "Sub": numpy.subtract,
    "Mul": numpy.multiply,
    "Div": numpy.divide,
    "Min": numpy.minimum,
    "Max": numpy.maximum,
    "Less": numpy.less,
    "Equal": numpy.equal,
}
UNRELATED = (
    # a call decides which of the two is repeated: shapes of the first, of the second
    (1, 300, 300, 300),
    (300, 1, 1, 300),
    (300, 300, 300, 1),
    (1, 1, 300, 300),
    (2000, 3, 1, 3),
    (2000, 3, 2000, 1),
    (64, 1000, 1, 1000),
    (64, 1000, 64, 1),
    (300, 300, 300, 300),
)


def functions() -> Iterator[Family]:
    for name in FUNCTIONS:
        kinds = (
            ("float", "float16") if name in ("Relu", "Tanh", "Exp", "Abs", "Sqrt") else ("float",)
        )
        yield from typed(Family(name, f"y = {name} (x)", ("T[n] x",), FLAT), *kinds)
    yield from typed(
        Family("Abs", "y = Abs (x)", ("T[n] x",), FLAT), "int8", "int32", "int64", "double"
    )
    yield Family("Gelu tanh", 'y = Gelu <approximate="tanh"> (x)', ("float[n] x",), FLAT)
    yield Family("Not", "y = Not (x)", ("bool[n] x",), FLAT)
    yield from typed(
        Family("BitwiseNot", "y = BitwiseNot (x)", ("T[n] x",), FLAT), "uint8", "int32"
    )
    yield Family("QuickGelu", "y = com.microsoft.QuickGelu (x)", ("float[n] x",), FLAT)


def arithmetic() -> Iterator[Family]:
    for name in (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Less",
        "Equal",
        "GreaterOrEqual",
    ):
        pair = Family(
            name, f"y = {name} (a, b)", ("T[n,m] a", "T[n,m] b"), PAIRS[::2], numpy=NUMPY.get(name)
        )
        yield from typed(pair, "float")
    for name, kinds in (
        ("Mod", "int8 uint8 int32 int64"),
        ("Div", "int8 uint8 int32 int64"),
        ("Add", "int8 int64 float16 double"),
        ("Mul", "int32 uint8"),
        ("BitwiseAnd", "uint8 int32"),
        ("And", "bool"),
        ("Or", "bool"),
        ("BitwiseOr", "int32"),
        ("BitwiseXor", "uint8"),
        ("LessOrEqual", "float int64"),
        ("Xor", "bool"),
    ):
        pair = Family(name, f"y = {name} (a, d)", ("T[n,m] a", "T[n,m] b"), PAIRS[::2])
        one = "o := T {1} d = Max (b, o) " if name in ("Mod", "Div") else ""
        text = pair.nodes if one else pair.nodes.replace("d)", "b)")
        yield from typed(
            Family(name, one + text, pair.inputs, pair.sizes, numpy=NUMPY.get(name)), *kinds.split()
        )
    yield Family(
        "Mod fmod", "y = Mod <fmod=1> (a, b)", ("float[n,m] a", "float[n,m] b"), PAIRS[::2]
    )
    for way in ("LEFT", "RIGHT"):
        shift = f'y = BitShift <direction="{way}"> (a, b)'
        pair = Family(f"BitShift {way}", shift, ("T[n,m] a", "T[n,m] b"), PAIRS[::2])
        yield from typed(pair, "uint8", "uint32")
    yield from typed(
        Family("Where", "y = Where (c, a, b)", ("bool[n,m] c", "T[n,m] a", "T[n,m] b"), PAIRS[::2]),
        "float",
        "int64",
        "uint8",
    )
    yield from typed(
        Family(
            "Clip",
            "l := T {1} h := T {3} y = Clip (x, l, h)",
            ("T[n] x",),
            FLAT,
        ),
        "float",
        "int8",
    )
    yield Family(
        "PRelu",
        "y = PRelu (x, s)",
        ("float[n,16,m] x",),
        at("n m", (1, 7), (4, 100), (1, 3136)),
        constants=("float[16,1] s",),
    )
    yield Family(
        "Sum of 4", "y = Sum (a, b, c, d)", tuple(f"float[n] {name}" for name in "abcd"), FLAT
    )
    yield Family(
        "Mean of 3", "y = Mean (a, b, c)", tuple(f"float[n] {name}" for name in "abc"), FLAT
    )


def broadcasts() -> Iterator[Family]:
    forms = {
        "row": ("T[n,m] a", "T[m] b"),
        "column": ("T[n,m] a", "T[n,1] b"),
        "row and column": ("T[n,1] a", "T[1,m] b"),
        "one number": ("T[n,m] a", "T[1] b"),
    }
    for form, inputs in forms.items():
        for name, kinds in (("Add", "float int8 int64 float16"), ("Less", "float")):
            family = Family(
                f"{name} {form}", f"y = {name} (a, b)", inputs, PAIRS[1:], numpy=NUMPY[name]
            )
            yield from typed(family, *kinds.split())
    yield Family(
        "Add channels",
        "y = Add (a, b)",
        ("float[n,c,h,w] a", "float[c,1,1] b"),
        at(
            "n c h w",
            (1, 3, 224, 224),
            (1, 64, 56, 56),
            (8, 512, 7, 7),
            (1, 32, 13, 13),
            (2, 100, 1, 1),
        ),
    )
    sizes = at("a b c d", *UNRELATED)
    inputs = ("T[a,b] x", "T[c,d] z")
    for name, kinds in (
        ("Add", "float int8 int32 int64 float16"),
        ("Div", "float uint8"),
        ("Less", "float"),
        ("Max", "float"),
    ):
        family = Family(
            f"{name} unrelated",
            f"y = {name} (x, z)",
            inputs,
            sizes,
            below={"z": 7},
            numpy=NUMPY[name],
        )
        if name == "Div":
            family = Family(
                f"{name} unrelated",
                "o := T {1} d = Add (z, o) y = Div (x, d)",
                inputs,
                sizes,
            )
        yield from typed(family, *kinds.split())
    yield Family(
        "Where unrelated",
        "y = Where (k, x, z)",
        ("bool[a,b] k", *("float[a,b] x", "float[c,d] z")),
        sizes,
    )


def conversions() -> Iterator[Family]:
    pairs = (
        ("float", "float16", 10),
        ("float16", "float", 1),
        ("float", "int8", 3),
        ("uint8", "float", 1),
        ("int64", "float", 1),
        ("int32", "int64", 7),
        ("int64", "int32", 6),
        ("float", "bool", 9),
        ("bool", "float", 1),
        ("float", "int64", 7),
        ("float", "double", 11),
        ("uint8", "int32", 6),
    )
    for source, target, code in pairs:
        yield Family(
            f"Cast {source} to {target}", f"y = Cast <to={code}> (x)", (f"{source}[n] x",), FLAT
        )
    numbers = "s := float {0.05} "
    for kind in ("uint8", "int8"):
        zero = f"{numbers} z := {kind} {{3}} "
        yield Family(
            f"QuantizeLinear {kind}", f"{zero} y = QuantizeLinear (x, s, z)", ("float[n] x",), FLAT
        )
        yield Family(
            f"DequantizeLinear {kind}",
            f"{zero} y = DequantizeLinear (x, s, z)",
            (f"{kind}[n] x",),
            FLAT,
        )
    yield Family(
        "DequantizeLinear channels",
        "y = DequantizeLinear <axis=1> (x, s)",
        ("int8[n,16,m] x",),
        at("n m", (1, 9), (1, 3136), (8, 100)),
        constants=("float[16] s",),
    )
    yield Family(
        "DynamicQuantizeLinear", "y, s, z = DynamicQuantizeLinear (x)", ("float[n] x",), FLAT
    )


FAMILIES = (*functions(), *arithmetic(), *broadcasts(), *conversions())
