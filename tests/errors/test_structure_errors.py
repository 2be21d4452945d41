# ruff: noqa: E501  the messages stand as users see them
"""One program per mistake with structures, and the message each gives.

A row is a program, the position and the problem, and the hint; the message also shows the line.
"""

import pytest

import anydim.compiler.ops  # noqa: F401  operators that definitions call
from anydim.base.errors import LanguageError
from anydim.base.text import caret
from anydim.lang.surface.parser import parse

TREE = "type Tree { leaf(float(D) x); node(Tree left, Tree right) }\n"
LIST = "type List<A> { nil; cons(A head, List<A> tail) }\n"
BUSH = "type Bush { bush(float(D) x, Bush(K) children) }\n"

DECLARATIONS = [
    (
        "type Tree { leaf(float x) }\ntype Tree { nil }",
        "2:6: type Tree: 'Tree' is declared twice",
        "rename one of them",
    ),
    (
        "type float { leaf }",
        "1:6: type float: 'float' is an element type",
        "a type and a type parameter start with a capital letter",
    ),
    (
        "type tree { leaf }",
        "1:6: type tree: 'tree' cannot be the name of a type",
        "a type and a type parameter start with a capital letter",
    ),
    (
        "type Tree { }",
        "1:6: type Tree: there is no constructor",
        "such as type Tree { leaf(float x); node(Tree left) }",
    ),
    (
        "type T { leaf(float x); leaf(float y) }",
        "1:25: type T: constructor 'leaf' is declared twice",
        "rename one of them",
    ),
    (
        "type T { leaf(float x, float x) }",
        "1:24: type T: field 'x' is named twice",
        "rename it",
    ),
    (
        "type T { node(T l) }",
        "1:6: type T: every constructor needs another 'T'",
        "no structure is finite: add a constructor without such a field",
    ),
    (
        "type A { a(B b) }\ntype B { b(A a); c(B b) }",
        "1:6: type A: every constructor needs another 'A'",
        "no structure is finite: add a constructor without such a field",
    ),
    (
        "type T { leaf(flaot(D) x) }",
        "1:15: type T: there is no type 'flaot'",
        "did you mean 'float'?",
    ),
    (
        "type T { leaf(Tre x) }",
        "1:15: type T: there is no type 'Tre'",
        "declare it: type Tre { ... }",
    ),
    (
        LIST + "type T { leaf(List x) }",
        "2:15: type T: type 'List' takes 1 type argument, not 0",
        "write List<A>, with types for 'A'",
    ),
    (
        LIST + "type T { leaf(List<float, int> x) }",
        "2:15: type T: type 'List' takes 1 type argument, not 2",
        "write List<A>, with types for 'A'",
    ),
    (
        "type T { leaf(float<int> x) }",
        "1:15: type T: type 'float' takes no type arguments",
        "write float",
    ),
    (
        "type T<A, A> { leaf(A x) }",
        "1:6: type T: type parameter 'A' is listed twice",
        "rename one of them",
    ),
    (
        "type T<Tree> { leaf(Tree x) }\n" + TREE,
        "1:6: type T: type parameter 'Tree' is a structure type",
        "rename it",
    ),
    (
        "type T { leaf(float(...s) x) }",
        "1:21: type T: a dimension of a field is a size or a number",
        "such as N, 3 or N + 1",
    ),
    (
        "type T { leaf; node(T(2) parts) }",
        "1:21: type T: field 'parts' is any number of structures, counted by one size",
        "such as T(K) parts; for a fixed number write that many fields",
    ),
    (
        "type T { leaf; node(T(A,B) parts) }",
        "1:21: type T: field 'parts' is any number of structures, counted by one size",
        "such as T(K) parts; for a fixed number write that many fields",
    ),
    (
        "type T { leaf(float(K) x); node(T(K) parts) }",
        "1:15: type T: 'K' is a size of 'leaf', but counts the structures of each 'node'",
        "rename one of them",
    ),
    (
        "type T { where(float x) }",
        "1:10: type T: 'where' cannot be the name of a constructor",
        "rename it",
    ),
    (
        "type T { leaf(float(K.0) x) }",
        "1:21: type T: a dimension of a field is a size or a number",
        "such as N, 3 or N + 1",
    ),
    (
        "type Nest<A> { nil; cons(A x, Nest<Nest<A>> tail) }",
        "1:6: the fields of type 'Nest' lead to ever larger types",
        "use a type in its fields as it is",
    ),
]

HEADS = [
    (
        TREE + "def f(Tre t) -> (y) { match t { leaf(x) { y = 1 } _ { y = 2 } } }",
        "2:29: f: 't' is a tensor, not a structure",
        "did you mean 'Tree'?",
    ),
    (
        TREE + "def f(Tree<float> t) -> (y) { y = 1 }",
        "2:7: f: type 'Tree' takes no type arguments",
        "write Tree",
    ),
    (
        LIST + "def f(List l) -> (y) { y = 1 }",
        "2:7: f: type 'List' takes 1 type argument, not 0",
        "write List<A>, with types for 'A'",
    ),
    (
        LIST + "def f(List<floot> l) -> (y) { y = 1 }",
        "2:12: f: there is no type 'floot'",
        "did you mean 'float'?",
    ),
    (
        TREE + "def f(Tree(N) t) -> (y) { y = 1 }",
        "2:7: f: parameter 't' is one structure",
        "write Tree t; only a field is any number of structures",
    ),
    (
        "def f(Lst<float> l) -> (y) { y = 1 }",
        "1:7: f: there is no type 'Lst'",
        "declare it: type Lst { ... }",
    ),
]

PATTERNS = [
    (
        TREE + "def f(Tree t) -> (y) { match t { lef(x) { y = 1 } _ { y = 2 } } }",
        "2:34: f: 'lef' is no constructor of Tree",
        "did you mean 'leaf'?",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { node(l) { y = 1 } _ { y = 2 } } }",
        "2:34: f: 'node' has 2 fields, but 1 in the pattern",
        "write node(left, right)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf { y = 1 } _ { y = 2 } } }",
        "2:34: f: 'leaf' has 1 field, but 0 in the pattern",
        "write leaf(x)",
    ),
    (
        LIST + "def f(List<float> l) -> (y) { match l { nil(x) { y = 1 } _ { y = 2 } } }",
        "2:41: f: 'nil' has no fields, but 1 in the pattern",
        "write nil",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } } }",
        "2:24: f: no case fits node(_, _)",
        "add a case: node(_, _) { ... }",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } node(node(_, _), _) { y = 2 } } }",
        "2:24: f: no case fits node(leaf(_), _)",
        "add a case: node(leaf(_), _) { ... }",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { node(leaf(_), _) { y = 1 } leaf(x) { y = 2 } node(a, leaf(_)) { y = 2 } } }",
        "2:24: f: no case fits node(node(_, _), node(_, _))",
        "add a case: node(node(_, _), node(_, _)) { ... }",
    ),
    (
        TREE
        + "def f(Tree s, Tree t) -> (y) { match s, t { leaf(_), leaf(_) { y = 1 } node(_, _), _ { y = 2 } } }",
        "2:32: f: no case fits leaf(_), node(_, _)",
        "add a case: leaf(_), node(_, _) { ... }",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { } y = 1 }",
        "2:24: f: the match has no case",
        "add one for each constructor, or _ { ... } for all",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } other { y = 2 } node(l, r) { y = 3 } } }",
        "2:68: f: the case is never reached: the cases before fit all that it fits",
        "remove it, or move it up",
    ),
    (
        LIST + "def f(List<float> l) -> (y) { match l { nill { y = 1 } cons(x, _) { y = 3 } } }",
        "2:56: f: the case is never reached: the cases before fit all that it fits",
        "'nill' is a name that fits all: did you mean 'nil'?",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { node(a, a) { y = 1 } leaf(_) { y = 2 } } }",
        "2:42: f: 'a' occurs twice in the patterns of a case",
        "rename one of them, or write '_' for what the case does not use",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(node(a, b)) { y = 1 } _ { y = 2 } } }",
        "2:39: f: field 'x' is a tensor, so its pattern is a name or '_'",
        "",
    ),
    (
        BUSH + "def f(Bush t) -> (y) { match t { bush(x, bush(_, _)) { y = 1 } _ { y = 2 } } }",
        "2:42: f: field 'children' is any number of structures, so its pattern is a name or '_'",
        "",
    ),
    (
        TREE + "def f(Tree s, Tree t) -> (y) { match s, t { leaf(x) { y = 1 } _, _ { y = 2 } } }",
        "2:45: f: the match has 2 structures, but the case 1 pattern",
        "write one pattern for each",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t, t { _, _ { y = 2 } } }",
        "2:24: f: a structure is matched twice",
        "",
    ),
    (
        TREE + "def f(Tree t, float x) -> (y) { match t { leaf(x) { y = 1 } _ { y = 2 } } }",
        "2:48: f: 'x' is a tensor already, and cannot name a field",
        "use another name in the pattern",
    ),
    (
        TREE
        + "def f(Tree t, float(l) x) -> (y) { match t { leaf(z) { y = 1 } node(l, r) { y = 2 } } }",
        "2:69: f: 'l' is a size already, and cannot name a field",
        "use another name in the pattern",
    ),
    (
        BUSH + "def f(Bush t, float(K) w) -> (y) { match t { bush(x, children) { y +=! x(d) } } }",
        "2:46: f: 'K' is a number of structures here, and another size already",
        "rename the size in the definition, or match in a definition of its own",
    ),
    (
        TREE + "def f(Tree t) -> (D) { match t { leaf(x) { D +=! x(d) } _ { D = 0.0 } } }",
        "2:44: f: 'D' cannot be assigned",
        "it is the name of a size: rename the tensor",
    ),
    (
        TREE
        + "def f(Tree t, float(N) D) -> (y) { match t { leaf(x) { y +=! x(d) } _ { y = 0.0 } } }",
        "2:15: f: 'D' is both a tensor and a size",
        "rename one of them",
    ),
]

MATCHES = [
    (
        "def f(float(N) x) -> (y) { match x { leaf(z) { y = 1 } } }",
        "1:34: f: 'x' is a tensor, not a structure",
        "a match takes structures",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match u { leaf(z) { y = 1 } _ { y = 2 } } }",
        "2:30: f: there is no structure 'u'",
        "there is 't'",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(z) { match z { _ { y = 1 } } } _ { y = 2 } } }",
        "2:50: f: 'z' is a tensor, not a structure",
        "a match takes 't'",
    ),
    (
        BUSH + "def f(Bush t) -> (y) { match t { bush(x, c) { match c { _ { y = 1 } } } } }",
        "2:53: f: 'c' is any number of structures, and a match takes one",
        "call a definition for each of them: h = f(c)",
    ),
    (
        TREE + "def f(Tree t, float(N) x) -> (y) { for i in N { match t { _ { y(i) = 1 } } } }",
        "2:49: f: a match cannot be inside a loop",
        "put it into a definition of its own, and call that",
    ),
    (
        TREE
        + "def f(Tree t, float x) -> (y) { if x > 0 { match t { _ { y = 1 } } } else { y = 2 } }",
        "2:44: f: a match cannot be inside a branch",
        "put it into a definition of its own, and call that",
    ),
    (
        TREE + "def f(Tree t) -> (y, z) { match t { _ { y = 1 } } match t { _ { z = 2 } } }",
        "2:51: f: a block has one match, and this is the second",
        "put it into a definition of its own, and call that",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } node(l, r) { z = 2 } } }",
        "2:52: f: the case does not assign result 'y'",
        "add a statement: y(...) = ..., here or after the match",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(x) { y = 1 } node(l, r) { match l { leaf(_) { y = 2 } _ { z = 3 } } } } }",
        "2:93: f: the case does not assign result 'y'",
        "add a statement: y(...) = ..., here or after the match",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(x) { a = 1 } node(l, r) { b = 2 } } y = a }",
        "2:79: f: only some cases of the match assign 'a'",
        "assign it in each case",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(x) { a = 1 } node(l, r) { a(i) = 2 where i in 0:3 } } y = a }",
        "2:24: f: 'a' has 0 dimensions in one case, 1 in another",
        "rename one of them",
    ),
]

TENSORS = [
    (
        TREE + "def f(Tree t) -> (y) { y(i) = t(i) }",
        "2:31: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y = -t }",
        "2:29: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y = t.0 }",
        "2:28: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y(i) = t[i] where i in 0:3 }",
        "2:31: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y(i) = 1 where exists t(i) }",
        "2:46: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (t) { t = 1 }",
        "2:24: f: 't' cannot be assigned",
        "it is the name of a structure: rename the tensor",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(x) { x(i) = 1 y = 1 } _ { y = 2 } } }",
        "2:44: f: 'x' cannot be assigned",
        "it is a field of a structure: rename the tensor",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y = exp(t) }",
        "2:32: f: 't' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(t)",
    ),
    (
        TREE + "def f(Tree t) -> (y) { y = softmax(t) }",
        "2:36: f: 'softmax' takes tensors, and 't' is a structure",
        "call a definition that matches it",
    ),
    (
        TREE
        + "def g(Tree t, float x) -> (y) { y = x }\ndef f(Tree t, float x) -> (y) { y = g(x, x) }",
        "3:39: f: 'g' takes a Tree for 't', and 'x' is a tensor",
        "",
    ),
    (
        TREE
        + "def g(Tree t, float x) -> (y) { y = x }\ndef f(Tree t, float x) -> (y) { y = g(2, x) }",
        "3:39: f: 'g' takes a Tree for 't', and this is a number",
        "",
    ),
    (
        TREE
        + "def g(Tree t, float x) -> (y) { y = x }\ndef f(Tree t, float x) -> (y) { y = g(s, x) }",
        "3:39: f: there is no structure 's'",
        "'g' takes a Tree for 't'",
    ),
    (
        TREE
        + "def g(Tree t, float x) -> (y) { y = x }\ndef f(Tree t, float x) -> (y) { y = g(t, t) }",
        "3:42: f: 'g' takes a tensor for 'x', and 't' is a structure",
        "",
    ),
    (
        TREE
        + "def g(Tree t, float x) -> (y) { y = x }\ndef f(Tree t, float x) -> (y) { y = g(t) }",
        "3:37: f: 'g' takes 2 arguments, not 1",
        "write g(t, x)",
    ),
    (
        TREE + LIST + "def g(List<float> l) -> (y) { y = 1 }\ndef f(Tree t) -> (y) { y = g(t) }",
        "4:30: f: 'g' takes a List<float> for 'l', and 't' is a Tree",
        "",
    ),
    (
        LIST + "def g(List<float> l) -> (y) { y = 1 }\ndef f(List<int> t) -> (y) { y = g(t) }",
        "3:35: f: 'g' takes a List<float> for 'l', and 't' is a List<int>",
        "",
    ),
    (
        LIST + "def g(List<float> l) -> (y) { y = 1 }\ndef f(List<float(D)> t) -> (y) { y = g(t) }",
        "3:40: f: 'g' takes a List<float> for 'l', and 't' is a List<float(D)>",
        "",
    ),
    (
        TREE
        + "def g(Tree t) -> (y) { y = 1 }\ndef f(Tree t, float(N) x) -> (y) { for i in N { z = g(t) y(i) = z } }",
        "3:53: f: a call with structures cannot be inside a loop",
        "call it before, and use its results inside",
    ),
    (
        TREE
        + "def g(Tree t) -> (y) { y = 1 }\ndef f(Tree t, float x) -> (y) { if x > 0 { y = g(t) } else { y = 1 } }",
        "3:48: f: a call with structures cannot be inside a branch",
        "call it before, and use its results inside",
    ),
    (
        "type Two { two(Two(K) a, Two(K) b) }\ndef f(Two s, float x) -> (y) { match s { two(a, b) { r = g(a, b) y +=! r(k) } } }\ndef g(Two a, Two b) -> (y) { y = 1 }",
        "2:63: f: 'a' and 'b' are both any number of structures",
        "a call may have one such argument: it is called for each",
    ),
]

RECURSION = [
    (
        TREE + "def f(Tree t) -> (y) { y = f(t) }",
        "2:30: f: recursion on something that does not get smaller: 't'",
        "the first structure of the call must be a part of 't' that a pattern names",
    ),
    (
        TREE + "def f(Tree t) -> (y) { match t { leaf(_) { y = 1 } same { y = f(same) } } }",
        "2:65: f: recursion on something that does not get smaller: 'same'",
        "the first structure of the call must be a part of 't' that a pattern names",
    ),
    (
        TREE
        + "def f(Tree s, Tree t) -> (y) { match t { leaf(_) { y = 1 } node(a, b) { y = f(a, s) } } }",
        "2:79: f: recursion on something that does not get smaller: 'a'",
        "the first structure of the call must be a part of 's' that a pattern names",
    ),
    (
        TREE + "def f(Tree s) -> (y) { y = g(s) }\ndef g(Tree s) -> (y) { y = f(s) }",
        "2:30: f: recursion on something that does not get smaller: 's'",
        "the first structure of the call must be a part of 's' that a pattern names",
    ),
    (
        "def f(float x) -> (y) { y = f(x) }",
        "1:29: f: 'f' calls itself: f -> f",
        "write a loop instead, or bound the number of open calls: ; size depth = 100",
    ),
    (
        TREE
        + "def f(Tree t) -> (y) { match t { leaf(x) { y = g(x) } node(a, b) { y = f(a) } } }\ndef g(float(N) x) -> (y) { y = h(x) }\ndef h(float(N) x) -> (y) { y = g(x) }",
        "4:32: h: 'g' calls itself: g -> h -> g",
        "write a loop instead, or bound the number of open calls: ; size depth = 100",
    ),
    (
        TREE
        + "def f(Tree t, float x) -> (y) { y = g(x, t) }\ndef g(float x, Tree t) -> (y) { match t { leaf(_) { y = x } node(a, b) { y = h(x) } } }\ndef h(float x) -> (y) { y = h(x) }",
        "4:29: h: 'h' calls itself: h -> h",
        "write a loop instead, or bound the number of open calls: ; size depth = 100",
    ),
]


NODES = [
    (
        TREE
        + "def f(Tree t) -> (r) { match t { leaf(x) { r = leaf(x, x) } node(a, b) { r = t } } }",
        "2:48: f: 'leaf' has 1 field, but 2 are given",
        "write leaf(x)",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r = nil(l) }",
        "2:35: f: 'nil' has no fields, but 1 is given",
        "write nil",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r = cons }",
        "2:35: f: 'cons' has 2 fields, but 0 are given",
        "write cons(head, tail)",
    ),
    (
        TREE
        + "def f(Tree t) -> (r) { match t { leaf(x) { r = node(x, t) } node(a, b) { r = t } } }",
        "2:53: f: field 'left' of 'node' is a Tree, and 'x' is a tensor",
        "it has the fields node(Tree left, Tree right)",
    ),
    (
        TREE + "def f(Tree t) -> (r) { r = leaf(t) }",
        "2:33: f: field 'x' of 'leaf' is a tensor, and 't' is a Tree",
        "it has the fields leaf(float(D) x)",
    ),
    (
        TREE
        + "def f(Tree t) -> (r) { match t { leaf(x) { y = 1.0 r = leaf(y) } node(a, b) { r = t } } }",
        "2:61: f: field 'x' of 'leaf' has 1 dimension, and 'y' has 0",
        "assign the field to a tensor first",
    ),
    (
        TREE + "def f(Tree t) -> (r) { r = leaf(1) }",
        "2:33: f: field 'x' of 'leaf' has 1 dimension, and this is a number",
        "assign the field to a tensor first",
    ),
    (
        TREE + "def f(Tree t) -> (r) { r = node(t, q) }",
        "2:36: f: there is no structure 'q'",
        "field 'right' of 'node' is a Tree",
    ),
    (
        TREE + "def f(Tree t) -> (r) { r = node(t, leaf(t)) }",
        "2:41: f: field 'x' of 'leaf' is a tensor, and 't' is a Tree",
        "it has the fields leaf(float(D) x)",
    ),
    (
        TREE + "def f(Tree t) -> (r) { r = node(t, 2) }",
        "2:36: f: field 'right' of 'node' is a Tree, and this is an expression",
        "assign the structure to a name first",
    ),
    (
        TREE + LIST + "def f(Tree t, List<float> l) -> (r) { r = node(t, l) }",
        "3:51: f: field 'right' of 'node' is a Tree, and 'l' is a List<float>",
        "it has the fields node(Tree left, Tree right)",
    ),
    (
        TREE + LIST + "def f(Tree t, List<Tree> l) -> (r) { r = cons(l, l) }",
        "3:47: f: field 'head' of 'cons' is a Tree, and 'l' is a List<Tree>",
        "it has the fields cons(Tree head, List<Tree> tail)",
    ),
    (
        TREE + LIST + "def f(Tree t) -> (r) { r = nil }",
        "3:28: f: 'nil' makes a List, and no parameter has this type",
        "a definition makes nodes of the types of its parameters and of their fields",
    ),
    (
        TREE + LIST + "def f(float x) -> (r) { r = cons(x, x) }",
        "3:29: f: 'cons' makes a List, and no parameter has this type",
        "a definition makes nodes of the types of its parameters and of their fields",
    ),
    (
        TREE + "def f(Tree t) -> (r) { a = node(t, t) r = a + 1 }",
        "2:43: f: 'a' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(a)",
    ),
    (
        TREE + "def f(Tree t) -> (r) { a = node(t, t) r(i) = a(i) }",
        "2:46: f: 'a' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(a)",
    ),
    (
        TREE + "def f(Tree t) -> (r) { match t { leaf(x) { r = 1.0 } node(a, b) { r = a } } }",
        "2:67: f: 'r' is a Tree here, and a tensor in another case",
        "a name has one type: rename one of them",
    ),
    (
        TREE
        + "def f(Tree t) -> (r) { match t { leaf(x) { r = t } node(a, b) { p = f(a) r +=! x(i) } } }",
        "2:74: f: 'r' is a tensor here, and a Tree in another case",
        "a name has one type: rename one of them",
    ),
    (
        TREE
        + LIST
        + "def f(Tree t, List<float> l) -> (r) { match t { leaf(x) { r = l } node(a, b) { r = a } } }",
        "3:80: f: 'r' is a Tree here, and a List<float> in another case",
        "a name has one type: rename one of them",
    ),
    (
        TREE
        + "def f(Tree t) -> (r) { match t { leaf(x) { r = t } node(a, b) { r = g(a) } } }\ndef g(Tree t) -> (s) { match t { leaf(x) { s +=! x(i) } node(a, b) { s = f(a) } } }",
        "3:70: g: 's' is a Tree here, and a tensor in another case",
        "a name has one type: rename one of them",
    ),
    (
        BUSH + "def f(Bush b) -> (r) { match b { bush(x, children) { r = bush(x, children) } } }",
        "2:58: f: field 'children' of 'bush' is any number of structures, which a definition cannot make",
        "use fields of one structure",
    ),
    (
        BUSH + "def f(Bush b) -> (r) { match b { bush(x, children) { r = children } } }",
        "2:58: f: 'children' is any number of structures, and a result or a field is one",
        "call a definition for each of them",
    ),
    (
        BUSH + "def f(Bush b) -> (r) { match b { bush(x, children) { q = f(children) r = b } } }",
        "2:58: f: 'f' gives a structure for each of 'children'",
        "only tensors have an axis in front: call it for one structure",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { for i in 0:3 { r = cons(i, l) } }",
        "2:46: f: 'r' is a structure, and a loop assigns tensors only",
        "assign it before the loop, or after it",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { for i in 0:3 { r = l } }",
        "2:46: f: 'r' is a structure, and a loop assigns tensors only",
        "assign it before the loop, or after it",
    ),
    (
        LIST + "def f(List<float> l, List<List<float>> m) -> (n) { a = nil n = 1 }",
        "2:52: f: the type of 'a' is not known: a List<List<float>> or a List<float>",
        "make it a field of another structure, or pass it to a definition",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r, s = cons(1, l) }",
        "2:31: f: 'cons' makes one structure, but 2 are assigned",
        "",
    ),
    (
        LIST
        + "def f(List<float> l) -> (r) { a = cons(1, l) match a { nil { r = 0 } _ { r = 1 } } }",
        "2:52: f: 'a' is assigned, and a match takes parameters and their parts",
        "there is 'l'",
    ),
    (
        LIST
        + "def f(List<float> l) -> (r) { match l { nil { r = l } cons(x, rest) { a = cons(x, rest) r = f(a) } } }",
        "2:95: f: recursion on something that does not get smaller: 'a'",
        "the first structure of the call must be a part of 'l' that a pattern names",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { if 1 == 1 { r = l } else { r = 1 } }",
        "2:58: f: 'r' is a tensor here, and a List<float> in another statement",
        "a name has one type: rename one of them",
    ),
    (
        LIST
        + "def f(List<float> l) -> (r) { match l { nil { a = l } cons(x, rest) { b = 1 } } r = a }",
        "2:85: f: only some cases of the match assign 'a'",
        "assign it in each case",
    ),
    (
        LIST + "def f(List<float> l) -> (l) { l = nil }",
        "2:31: f: 'l' cannot be assigned",
        "it is the name of a structure: rename the tensor",
    ),
    (
        LIST + "def f(List<float> l, float(N) y) -> (r) { r = cons(y, l) }",
        "2:52: f: field 'head' of 'cons' has 0 dimensions, and 'y' has 1",
        "assign the field to a tensor first",
    ),
    (
        LIST + "def f(List<float> l, float(N) y) -> (r) { r = cons(y(i), l) }",
        "2:54: f: a field has no index 'i'",
        "it may use sizes, loop variables and scalars",
    ),
    (
        LIST + "def f(List<float> l, float(N) y) -> (r) { r = cons(i, l) }",
        "2:52: f: a field has no index 'i'",
        "it may use sizes, loop variables and scalars",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { y(i) = l(i) r = l }",
        "2:38: f: 'l' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(l)",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r = cons(1, l; a=2) }",
        "2:35: f: 'cons' is a constructor: it takes fields only",
        "",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { x = cons(1, l)  x(i) = 2.0 where i in 0:3 r = x }",
        "2:47: f: 'x' is a tensor here, and a List<float> in another statement",
        "a name has one type: rename one of them",
    ),
    (
        LIST
        + "def f(List<float> l) -> (r) { x = g(l) r = cons(1, x) }\ndef g(List<float> l) -> (s) { s = 1.0 }",
        "2:52: f: field 'tail' of 'cons' is a List<float>, and 'x' is a tensor",
        "it has the fields cons(float head, List<float> tail)",
    ),
    (
        LIST
        + "def f(List<float> l) -> (r) { x = g(l) r = cons(x, l) }\ndef g(List<float> l) -> (s) { s = l }",
        "2:49: f: field 'head' of 'cons' is a tensor, and 'x' is a List<float>",
        "it has the fields cons(float head, List<float> tail)",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r = -l }",
        "2:36: f: 'l' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(l)",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { r = relu(l) }",
        "2:40: f: 'l' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(l)",
    ),
    (
        LIST + "def f(List<float> l) -> (r) { a = cons(1, l) r = relu(a) }",
        "2:55: f: 'a' is a structure, not a tensor",
        "match it, or pass it to a definition: y = f(a)",
    ),
]


@pytest.mark.parametrize("text, problem, hint", [
    *DECLARATIONS, *HEADS, *PATTERNS, *MATCHES, *TENSORS, *RECURSION, *NODES,
])  # fmt: skip
def test_the_message_is_this(text, problem, hint):
    with pytest.raises(LanguageError) as caught:
        parse(text, "demo.tc")
    line, column, _ = problem.split(":", 2)
    start = sum(len(each) + 1 for each in text.split("\n")[: int(line) - 1])
    message = f"demo.tc:{problem}\n{caret(text, start + int(column) - 1)}"
    assert str(caught.value) == (f"{message}\n  {hint}" if hint else message)
