# ruff: noqa: E501  the messages stand as users see them
"""One program per mistake, and the whole message each gives."""

import pytest

from anydim.base.dtypes import float32
from anydim.base.errors import LanguageError
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.language import group_of, random

PARSE_ERRORS = [
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) + }",
        """demo.tc:1:42: expected an expression, found '}'
    def f(float(N) x) -> (y) { y(i) = x(i) + }
                                             ^""",
    ),
    (
        "def f(float(N) x -> (y) { y(i) = x(i) }",
        """demo.tc:1:18: expected ')', ',' or ';', found '->'
    def f(float(N) x -> (y) { y(i) = x(i) }
                     ^""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  y(i) = x(i)\n",
        """demo.tc:2:14: the text ends early; expected a statement or '}'
      y(i) = x(i)
                 ^""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  // add\n  y(i) = x(i) }",
        """demo.tc:2:3: expected a statement or '}', found '//'
      // add
      ^
  comments start with '#'; '//' is floor division""",
    ),
    (
        "def f(flaot(N) x) -> (y) { y(i) = x(i) }",
        """demo.tc:1:7: f: there is no element type 'flaot'
    def f(flaot(N) x) -> (y) { y(i) = x(i) }
          ^
  did you mean 'float'?""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = exq(x(i)) }",
        """demo.tc:1:35: f: there is no tensor or function 'exq'
    def f(float(N) x) -> (y) { y(i) = exq(x(i)) }
                                      ^
  did you mean 'exp'?""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = max(x(i)) }",
        """demo.tc:1:35: f: 'max' takes 2 arguments, not 1
    def f(float(N) x) -> (y) { y(i) = max(x(i)) }
                                      ^
  over an index it is a statement: y max=! x(i)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i,i) }",
        """demo.tc:1:35: f: tensor 'x' has 1 dimension, not 2
    def f(float(N) x) -> (y) { y(i) = x(i,i) }
                                      ^
  write x(i)""",
    ),
    (
        "def f(float(N,M) x) -> (y) { y(i) = x(i,j) }",
        """demo.tc:1:41: f: index 'j' is not on the left, so the statement is a reduction over it
    def f(float(N,M) x) -> (y) { y(i) = x(i,j) }
                                            ^
  write '+=!', '*=!', 'min=!' or 'max=!' instead of '='""",
    ),
    (
        "def f(float(N) x) -> (z) { y(i) = x(i) }",
        """demo.tc:1:5: f: no statement assigns result 'z'
    def f(float(N) x) -> (z) { y(i) = x(i) }
        ^
  add a statement: z(...) = ...""",
    ),
    (
        "def f(float(N) x) -> (y) { y(...i) = x(...i) }",
        """demo.tc:1:30: f: no parameter has '...i'
    def f(float(N) x) -> (y) { y(...i) = x(...i) }
                                 ^
  declare it: float(...i) x""",
    ),
    (
        "def f(float(N) x; real a = 1) -> (y) { y(i) = x(i) }",
        """demo.tc:1:19: an attribute cannot be of kind 'real'
    def f(float(N) x; real a = 1) -> (y) { y(i) = x(i) }
                      ^
  kinds: int, float, bool, size, type""",
    ),
    (
        "def f(float s) -> (y) { y = s }\n\ndef f(float s) -> (y) { y = s }",
        """demo.tc:3:5: 'f' is defined twice
    def f(float s) -> (y) { y = s }
        ^
  give one of them another name""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x }",
        """demo.tc:1:35: f: tensor 'x' needs indices
    def f(float(N) x) -> (y) { y(i) = x }
                                      ^
  write x(i)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) else x(0) else 1 where j in 0:2, }",
        """demo.tc:1:73: expected 'exists' or a name, found '}'
    def f(float(N) x) -> (y) { y(i) = x(i) else x(0) else 1 where j in 0:2, }
                                                                            ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N y(t) = x(t) }",
        """demo.tc:1:39: expected ':' or '{', found 'y'
    def f(float(N) x) -> (y) { for t in N y(t) = x(t) }
                                          ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t = 0:N { y(t) = x(t) } }",
        """demo.tc:1:34: expected 'in', found '='
    def f(float(N) x) -> (y) { for t = 0:N { y(t) = x(t) } }
                                     ^
  write a loop as: for t in 0:N { ... }""",
    ),
    (
        "def f(float(N) x) -> (y) { if N > 0 y = 1 }",
        """demo.tc:1:37: expected '{', found 'y'
    def f(float(N) x) -> (y) { if N > 0 y = 1 }
                                        ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) -= x(i) }",
        """demo.tc:1:33: expected an assignment, found '-='
    def f(float(N) x) -> (y) { y(i) -= x(i) }
                                    ^
  there is no '-=': write += -(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) =! x(i) }",
        """demo.tc:1:33: '=!' is not an assignment
    def f(float(N) x) -> (y) { y(i) =! x(i) }
                                    ^
  write '=' or '+=!'""",
    ),
    (
        "def f(float(N) x) -> (y) { y, z += g(x) }",
        """demo.tc:1:33: results of a call are assigned by '=', not '+='
    def f(float(N) x) -> (y) { y, z += g(x) }
                                    ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y, z = x(0) + 1 }",
        """demo.tc:1:40: several tensors are assigned by a call: C, D = g(A, B)
    def f(float(N) x) -> (y) { y, z = x(0) + 1 }
                                           ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in M { y(t) = x(t) } }",
        """demo.tc:1:37: f: the range of a loop has no index 'M'
    def f(float(N) x) -> (y) { for t in M { y(t) = x(t) } }
                                        ^
  it may use sizes, loop variables and scalars""",
    ),
    (
        "def f(float(N) x) -> (y) { for x in N { y(x) = 0 } }",
        """demo.tc:1:28: f: 'x' is already defined: use another loop variable
    def f(float(N) x) -> (y) { for x in N { y(x) = 0 } }
                               ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { for t in N { y(t) = x(t) } } }",
        """demo.tc:1:41: f: 't' is already defined: use another loop variable
    def f(float(N) x) -> (y) { for t in N { for t in N { y(t) = x(t) } } }
                                            ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { t = 1 } y = 0 }",
        """demo.tc:1:28: f: 't' is a loop variable, but a statement assigns it
    def f(float(N) x) -> (y) { for t in N { t = 1 } y = 0 }
                               ^
  use another loop variable""",
    ),
    (
        "def f(float(N) x) -> (y) { if i > 0 { y = 1 } else { y = 0 } }",
        """demo.tc:1:31: f: a condition has no index 'i'
    def f(float(N) x) -> (y) { if i > 0 { y = 1 } else { y = 0 } }
                                  ^
  it may use sizes, loop variables and scalars""",
    ),
    (
        "def f(float(N) x) -> (y) { y(t) = x(t) y(t,u) = 0 }",
        """demo.tc:1:40: f: 'y' has 1 dimension, but 2 here
    def f(float(N) x) -> (y) { y(t) = x(t) y(t,u) = 0 }
                                           ^
  write y(i), or another tensor""",
    ),
    (
        "def f(float(N) x) -> (y) { N = 3 y = 0 }",
        """demo.tc:1:28: f: 'N' cannot be assigned
    def f(float(N) x) -> (y) { N = 3 y = 0 }
                               ^
  it is the name of a size: rename the tensor""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = g(x) }",
        """demo.tc:1:35: f: there is no tensor or function 'g'
    def f(float(N) x) -> (y) { y(i) = g(x) }
                                      ^
  the tensors here are 'x', 'y'""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = z(i) z(i) = x(i) }",
        """demo.tc:1:35: f: there is no tensor or function 'z'
    def f(float(N) x) -> (y) { y(i) = z(i) z(i) = x(i) }
                                      ^
  it is assigned only after this statement""",
    ),
    (
        "def f(float(N) x) -> (y) { y = x(0) for t in N { y(t) = 1 } }",
        """demo.tc:1:50: f: 'y' has 0 dimensions, but 1 here
    def f(float(N) x) -> (y) { y = x(0) for t in N { y(t) = 1 } }
                                                     ^
  write y, or another tensor""",
    ),
    (
        "def f(float(N) x) -> (x) { y(i) = x(i) }",
        """demo.tc:1:5: f: no statement assigns result 'x'
    def f(float(N) x) -> (x) { y(i) = x(i) }
        ^
  it is a parameter: rename the result""",
    ),
    (
        "def g(float(N) x) -> (y, z) { y(i) = x(i) z(i) = x(i) }\n"
        "def f(float(N) x) -> (y) { y = g(x) }",
        """demo.tc:2:28: f: 'g' has 2 results (y, z), but 1 are assigned
    def f(float(N) x) -> (y) { y = g(x) }
                               ^
  write: y, z = g(...)""",
    ),
    (
        "def g(float x) -> (y) { y = x }\ndef f(float(N) x) -> (y) { y(i) = 2 * g(x(i) + 1) }",
        """demo.tc:2:39: f: an argument of 'g' has the index 'i', and is no row x(i)
    def f(float(N) x) -> (y) { y(i) = 2 * g(x(i) + 1) }
                                          ^
  assign it first: t(i) = ..., and pass t(i)""",
    ),
    (
        "def g(float(N) x) -> (y) { y = f(x) }\ndef f(float(N) x) -> (y) { y = g(x) }",
        """demo.tc:2:32: f: 'g' calls itself: g -> f -> g
    def f(float(N) x) -> (y) { y = g(x) }
                                   ^
  write a loop instead, or bound the number of open calls: ; size depth = 100""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = exp(x(i); a = 1) }",
        """demo.tc:1:35: f: 'exp' has no attributes
    def f(float(N) x) -> (y) { y(i) = exp(x(i); a = 1) }
                                      ^""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:exq(N) { y(t) = 0 } }",
        """demo.tc:1:39: f: there is no tensor or function 'exq'
    def f(float(N) x) -> (y) { for t in 0:exq(N) { y(t) = 0 } }
                                          ^
  did you mean 'exp'?""",
    ),
]


@pytest.mark.parametrize("text, message", PARSE_ERRORS, ids=range(len(PARSE_ERRORS)))
def test_parse_errors(text, message):
    with pytest.raises(LanguageError) as caught:
        parse(text, "demo.tc")
    assert str(caught.value) == message


INSTANTIATE_ERRORS = [
    (
        "def f(float(N) x) -> (y) { y(i) = x(i + 1) }",
        """<text>:1:30: f: the reads give 'i' a range from -1, not from 0
    def f(float(N) x) -> (y) { y(i) = x(i + 1) }
                                 ^
  add: where i in 0:..., or shift the index""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i,j) = x(i) }",
        """<text>:1:32: f: the range of 'j' cannot be inferred from any read
    def f(float(N) x) -> (y) { y(i,j) = x(i) }
                                   ^
  add: where j in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) +=! x(i - k) else 0 where k in 0:3 }",
        """<text>:1:30: f: the range of 'i' cannot be inferred from any read
    def f(float(N) x) -> (y) { y(i) +=! x(i - k) else 0 where k in 0:3 }
                                 ^
  add: where i in 0:... (a read with a default implies no range)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i,k) = (x(i) else 0) * k where k in 0:2 }",
        """<text>:1:30: f: the range of 'i' cannot be inferred from any read
    def f(float(N) x) -> (y) { y(i,k) = (x(i) else 0) * k where k in 0:2 }
                                 ^
  add: where i in 0:4 (a read with a default implies no range)""",
    ),
    (
        "def f(float(N) x) -> (y) {\n  y(i) = x(i) * x(4) }",
        """<text>:2:17: f: 'x' is read at 4 to 4 of dimension 0, whose size is 4
      y(i) = x(i) * x(4) }
                    ^
  give the read a default: x(...) else 0, or the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i - 1) where i in 0:N }",
        """<text>:1:35: f: 'x' is read at -1 to 2 of dimension 0, whose size is 4: with i = 0 at -1
    def f(float(N) x) -> (y) { y(i) = x(i - 1) where i in 0:N }
                                      ^
  give the read a default: x(...) else 0, or the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N,M) x) -> (y) { y(i) = x(i,0) }",
        """<text>:1:7: f: 'x' has 2 dimensions, but the argument has 1
    def f(float(N,M) x) -> (y) { y(i) = x(i,0) }
          ^
  give an array of that rank, or declare an ellipsis such as '...b'""",
    ),
    (
        "def f(float(N) x, float s) -> (y) { y(i) = x(i) * s }",
        """<text>:1:5: f: takes 2 tensors (x, s), not 1
    def f(float(N) x, float s) -> (y) { y(i) = x(i) * s }
        ^""",
    ),
    (
        "def f(float(N) x; int k) -> (y) { y(i) = x(i) * k }",
        """<text>:1:23: f: attribute 'k' is not given
    def f(float(N) x; int k) -> (y) { y(i) = x(i) * k }
                          ^
  give it by name, k=..., or a default: int k = ...""",
    ),
]


@pytest.mark.parametrize("text, message", INSTANTIATE_ERRORS, ids=range(len(INSTANTIATE_ERRORS)))
def test_instantiate_errors(text, message):
    with pytest.raises(LanguageError) as caught:
        group_of(text, random(4))
    assert str(caught.value) == message


FREE_ERRORS = [
    (
        "def f(float(N) x) -> (y) { y(i,k) = x(i + k) }",
        """<text>:1:30: f: the range of 'i' cannot be inferred: the read of 'x' in dimension 0 leaves 'i' and 'k' open
    def f(float(N) x) -> (y) { y(i,k) = x(i + k) }
                                 ^
  give one of them a range: where k in 0:..., or where i in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i - 1) }",
        """<text>:1:30: f: the reads give 'i' a range from 1, not from 0
    def f(float(N) x) -> (y) { y(i) = x(i - 1) }
                                 ^
  add: where i in 0:..., or shift the index""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i - 1) = x(i) }",
        """<text>:1:32: f: 'y' is written at -1 to n - 2 of dimension 0, whose size is max(n - 1, 0): with n = 1, i = 0 at -1
    def f(float(N) x) -> (y) { y(i - 1) = x(i) }
                                   ^
  give the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N) x) -> (y) { y += x(i) }",
        """<text>:1:28: f: 'y' is accumulated into before it is defined
    def f(float(N) x) -> (y) { y += x(i) }
                               ^
  start from the operator's identity, as in '+=!', or assign it first""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = y(i) + x(i) }",
        """<text>:1:35: f: the iteration order contradicts this read: with n = 1, i = 0, y(0) is read before it is written
    def f(float(N) x) -> (y) { y(i) = y(i) + x(i) }
                                      ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = x(t + 1) } }",
        """<text>:1:48: f: 'x' is read at 1 to n of dimension 0, whose size is n: with n = 1, t = 0 at 1
    def f(float(N) x) -> (y) { for t in N { y(t) = x(t + 1) } }
                                                   ^
  give the read a default: x(...) else 0, or the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) for t in N { y(t + 1) = y(t) } }",
        """<text>:1:57: f: 'y' is written at 1 to n of dimension 0, whose size is n: with n = 1, t = 0 at 1
    def f(float(N) x) -> (y) { y(i) = x(i) for t in N { y(t + 1) = y(t) } }
                                                            ^
  give the index a range: where i in lo:hi""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = (y(t + 1) else 0) + x(t) } }",
        """<text>:1:49: f: the iteration order contradicts this read: with n = 2, t = 0, y(1) is read before it is written
    def f(float(N) x) -> (y) { for t in N { y(t) = (y(t + 1) else 0) + x(t) } }
                                                    ^
  change the order of the iterations, as in for t in N - 1:-1:-1, or define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = 0 } for t in N { w(t) = w(t + 2) else x(t) } }",
        """<text>:1:72: f: the iteration order contradicts this read: with n = 3, t = 0, w(2) is read before it is written
    def f(float(N) x) -> (y) { for t in N { y(t) = 0 } for t in N { w(t) = w(t + 2) else x(t) } }
                                                                           ^
  change the order of the iterations, as in for t in N - 1:-1:-1, or define all of it first, as in w(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in -1:N-1 { y(t+1) = y(t + 2) else 0 } }",
        """<text>:1:55: f: the iteration order contradicts this read: with n = 2, t = -1, y(1) is read before it is written
    def f(float(N) x) -> (y) { for t in -1:N-1 { y(t+1) = y(t + 2) else 0 } }
                                                          ^
  change the order of the iterations, as in for t in N - 2:-2:-1, or define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N-1:-1:-1 { y(t) = (y(t - 1) else 0) + x(t) } }",
        """<text>:1:57: f: the iteration order contradicts this read: with n = 2, t = 1, y(0) is read before it is written
    def f(float(N) x) -> (y) { for t in N-1:-1:-1 { y(t) = (y(t - 1) else 0) + x(t) } }
                                                            ^
  change the order of the iterations, as in for t in 0:N, or define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = y(t) } }",
        """<text>:1:41: f: the element type of 'y' cannot be inferred: it depends only on itself
    def f(float(N) x) -> (y) { for t in N { y(t) = y(t) } }
                                            ^
  give the read a default, as in y(...) else 0, or convert it: float(...)""",
    ),
    (
        "def f(float(N) x) -> (y, w) { for t in N { y(t) = w(t - 1) else y(t - 1) w(t) = y(t) } }",
        """<text>:1:44: f: the element type of 'y' cannot be inferred: it depends only on itself
    def f(float(N) x) -> (y, w) { for t in N { y(t) = w(t - 1) else y(t - 1) w(t) = y(t) } }
                                               ^
  give the read a default, as in y(...) else 0, or convert it: float(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = exp(t * (y(t - 1) else 1)) } }",
        """<text>:1:48: f: 'exp' takes floating point, not int64
    def f(float(N) x) -> (y) { for t in N { y(t) = exp(t * (y(t - 1) else 1)) } }
                                                   ^
  write exp(float(...))""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(t) = z(t) z(t) = x(t) } }",
        """<text>:1:48: f: the iteration order contradicts this read: with n = 1, t = 0, z(0) is read before it is written
    def f(float(N) x) -> (y) { for t in N { y(t) = z(t) z(t) = x(t) } }
                                                   ^
  change the order of the iterations, or define all of it first, as in z(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 1:N { y(t) = x(t) } }",
        """<text>:1:43: f: with n = 1, y(0) is never written; 'y' has the sizes (n)
    def f(float(N) x) -> (y) { for t in 1:N { y(t) = x(t) } }
                                              ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:N:2 { y(t) = x(t) } }",
        """<text>:1:45: f: with n = 3, y(1) is never written; 'y' has the sizes (max(2*((n + 1)//2) - 1, 0))
    def f(float(N) x) -> (y) { for t in 0:N:2 { y(t) = x(t) } }
                                                ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { if N > 0 { y = x(0) } }",
        """<text>:1:39: f: with n = 0, y is never written
    def f(float(N) x) -> (y) { if N > 0 { y = x(0) } }
                                          ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i,i) = x(i) }",
        """<text>:1:28: f: with n = 2, y(0, 1) is never written; 'y' has the sizes (n, n)
    def f(float(N) x) -> (y) { y(i,i) = x(i) }
                               ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { y(2 * i) = x(i) y(2 * i + 3) = x(i) }",
        """<text>:1:28: f: with n = 0, y(0) is never written; 'y' has the sizes (2*n + 2)
    def f(float(N) x) -> (y) { y(2 * i) = x(i) y(2 * i + 3) = x(i) }
                               ^
  define all of it first, as in y(...) = 0""",
    ),
    (
        "def f(float(N) x) -> (y) { y(x(i)) = 3 }",
        """<text>:1:30: f: an index must be an integer, not float32
    def f(float(N) x) -> (y) { y(x(i)) = 3 }
                                 ^
  write int64(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(int64(x(i))) +=! 1 }",
        """<text>:1:28: f: the size of dimension 0 of 'y' cannot be inferred
    def f(float(N) x) -> (y) { y(int64(x(i))) +=! 1 }
                               ^
  define all of it first: y(i, ...) = 0 where i in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in N { y(i) = x(t) } }",
        """<text>:1:43: f: the range of 'i' cannot be inferred from any read
    def f(float(N) x) -> (y) { for t in N { y(i) = x(t) } }
                                              ^
  add: where i in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:N:0 { y(t) = 0 } }",
        """<text>:1:41: f: the step of a loop must be a nonzero constant
    def f(float(N) x) -> (y) { for t in 0:N:0 { y(t) = 0 } }
                                            ^
  such as 2 or -1; the default is 1""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:x(0) { y(t) = 0 } }",
        """<text>:1:39: f: the end of a loop must be an integer, not float32
    def f(float(N) x) -> (y) { for t in 0:x(0) { y(t) = 0 } }
                                          ^
  write int64(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { for t in 0:int64(x(0)) { y(t) = 0 } }",
        """<text>:1:53: f: the size of dimension 0 of 'y' cannot be inferred
    def f(float(N) x) -> (y) { for t in 0:int64(x(0)) { y(t) = 0 } }
                                                        ^
  define all of it first: y(i, ...) = 0 where i in 0:...""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) y(y(i)) = 0 }",
        """<text>:1:42: f: an index must be an integer, not float32
    def f(float(N) x) -> (y) { y(i) = x(i) y(y(i)) = 0 }
                                             ^
  write int64(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:N, i in 0:3 }",
        """<text>:1:56: f: 'i' has two ranges
    def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:N, i in 0:3 }
                                                           ^""",
    ),
    (
        "def f(float(N) x) -> (y) { y +=! x(i) > 0 }",
        """<text>:1:28: f: a sum or product needs numbers, not bool
    def f(float(N) x) -> (y) { y +=! x(i) > 0 }
                               ^
  write int32(...)""",
    ),
    (
        "def f(float(N) x) -> (y) { y(i) = x(i) & 3 }",
        """<text>:1:40: f: 'bit_and' takes integers, not float32
    def f(float(N) x) -> (y) { y(i) = x(i) & 3 }
                                           ^
  write int32(...)""",
    ),
    (
        "def g(float(N) x) -> (y) { y(i) = x(i) }\ndef f(float(N) x) -> (y) { y = g(x, x) }",
        """<text>:2:32: f: 'g' takes 1 tensor (x), not 2
    def f(float(N) x) -> (y) { y = g(x, x) }
                                   ^
  write g(x) with your tensors""",
    ),
    (
        "def g(int32(N) x) -> (y) { y(i) = x(i) }\ndef f(float(N) x) -> (y) { y = g(x) }",
        """<text>:2:32: f: in this call of 'g': <text>:1:7: g: 'x' is int32, but the argument is float32
    def g(int32(N) x) -> (y) { y(i) = x(i) }
          ^
    def f(float(N) x) -> (y) { y = g(x) }
                                   ^
  give an array of int32, or declare a type variable: T(...) x""",
    ),
    (
        "def g(float(N) x; float a) -> (y) { y(i) = a * x(i) }\n"
        "def f(float(N) x) -> (y) { y = g(x; a = x(0)) }",
        """<text>:2:41: f: attribute 'a' is known only at run time
    def f(float(N) x) -> (y) { y = g(x; a = x(0)) }
                                            ^
  attributes are constants and sizes; pass tensors and scalars as arguments""",
    ),
    (
        "def f(float(N,N) x) -> (y) { y(i) = x(i,i) }",
        """<text>:1:15: f: size N, dimension 0 of x, is n, but dimension 1 of x is n + 1
    def f(float(N,N) x) -> (y) { y(i) = x(i,i) }
                  ^""",
    ),
    (
        "def f(float(N) x, float(N) z) -> (y) { y(i) = x(i) + z(i) }",
        """<text>:1:25: f: size N, dimension 0 of x, is n, but dimension 0 of z is n + 1
    def f(float(N) x, float(N) z) -> (y) { y(i) = x(i) + z(i) }
                            ^""",
    ),
]


@pytest.mark.parametrize("text, message", FREE_ERRORS, ids=range(len(FREE_ERRORS)))
def test_errors_with_free_sizes(text, message):
    """All dimensions are n, but those of `z` and second ones: n + 1."""
    definition = list(parse(text).values())[-1]
    n = as_size("n")
    types = [
        TensorType(float32, tuple(n + (p.name == "z" or axis) for axis in range(len(p.shape))))
        for p in definition.parameters
    ]
    with pytest.raises(LanguageError) as caught:
        instantiate(definition, types, {}, Box.of(Dim("n")))
    assert str(caught.value) == message


def test_attributes_are_checked():
    text = "def f(float(N) x; int count = 1, bool on = true) -> (y) { y(i) = x(i) * count }"
    with pytest.raises(LanguageError, match=r"there is no attribute 'cuont'\n.*\n.*\n.*did you"):
        group_of(text, random(4), cuont=2)
    with pytest.raises(LanguageError, match=r"attribute 'count' must be an int, not 1.5"):
        group_of(text, random(4), count=1.5)


@pytest.mark.parametrize("depth", [90, 5_000])
@pytest.mark.parametrize("deep", [
    lambda n: "(" * n + "x(0)" + ")" * n, lambda n: "-" * n + "x(0)",
    lambda n: "x(0) + " * n + "x(0)", lambda n: "exp(" * n + "x(0)" + ")" * n,
    lambda n: "x(0) > 0 ? 1 : " * n + "2", lambda n: "x(0) else " * n + "1",
])  # fmt: skip
def test_deep_nesting_is_a_value_or_an_error(deep, depth):
    text = f"def f(float(N) x) -> (y) {{ y(i) = {deep(depth)} where i in 0:N }}"
    try:
        definition = parse(text)["f"]
    except LanguageError as error:
        assert "nested more than 100 deep" in str(error)
        assert depth > 90
    else:
        assert definition.name == "f"
        assert depth == 90 or "((((" in text
