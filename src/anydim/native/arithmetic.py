"""Size expressions -> LLVM instructions on i64, with Python's meaning of // and %.

An operation whose result provably fits 64 bits is a plain instruction; another one reports
overflow in a flag that the caller asks for. A divisor that may be 0 divides by 1 instead and sets
the flag too, so nothing here can trap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anydim.base.errors import InternalError
from anydim.sizes import Interval, Size

LARGEST = 2**63 - 1
_RELATIONS = {"==": "eq", "!=": "ne", "<=": "sle", "<": "slt", ">=": "sge", ">": "sgt"}


@dataclass(frozen=True)
class Term:
    """An i64 operand (a register or a number) and where its value lies."""

    name: str
    range: Interval


class Lines:
    """The instructions of one function, and fresh register names."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._count = 0

    def add(self, instruction: str) -> None:
        """One more line."""
        self.text.append(f"  {instruction}")

    def let(self, instruction: str) -> str:
        """One more line with a result; the register that holds it."""
        self._count += 1
        self.text.append(f"  %v{self._count} = {instruction}")
        return f"%v{self._count}"

    def load_word(self, base: str, word: int, type: str = "i64") -> str:
        """The 8-byte word number `word` from a pointer on."""
        return self.let(f"load {type}, ptr {self.word(base, word)}, align 8")

    def word(self, base: str, word: int) -> str:
        """The address of the 8-byte word number `word` from a pointer on."""
        return self.let(f"getelementptr i64, ptr {base}, i64 {word}") if word else base

    def store_word(self, base: str, word: int, value: str, type: str = "i64") -> None:
        """Write the 8-byte word number `word` from a pointer on."""
        self.add(f"store {type} {value}, ptr {self.word(base, word)}, align 8")


@dataclass
class Arithmetic:
    """Emits sizes into `lines`; `symbols` holds the operand for each known dim.

    `overflow` is an i1 operand: whether something so far did not fit or divided by 0.
    """

    lines: Lines
    symbols: Mapping[str, Term]
    overflow: str = "false"
    _known: dict[tuple[str, str, str], Term] = field(default_factory=dict)

    def size(self, size: Size) -> str:
        """The operand with the value of a size."""
        return size.fold(_constant, self.symbols.__getitem__, self._apply).name

    def holds(self, left: str, relation: str, right: str) -> str:
        """An i1 operand: `left relation right`."""
        return self.lines.let(f"icmp {_RELATIONS[relation]} i64 {left}, {right}")

    def _apply(self, function: str, terms: tuple[Term, ...]) -> Term:
        left, right = terms
        key = (function, left.name, right.name)
        if key not in self._known:
            self._known[key] = _RULES[function](self, left, right)
        return self._known[key]

    def _checked(self, operation: str, left: Term, right: Term, range: Interval) -> Term:
        if _fits(range):
            return Term(self.lines.let(f"{operation} nsw i64 {left.name}, {right.name}"), range)
        pair = self.lines.let(
            f"call {{i64, i1}} @llvm.s{operation}.with.overflow.i64"
            f"(i64 {left.name}, i64 {right.name})"
        )
        self._fail_if(self.lines.let(f"extractvalue {{i64, i1}} {pair}, 1"))
        return Term(self.lines.let(f"extractvalue {{i64, i1}} {pair}, 0"), range)

    def _add(self, left: Term, right: Term) -> Term:
        return self._checked("add", left, right, left.range + right.range)

    def _multiply(self, left: Term, right: Term) -> Term:
        return self._checked("mul", left, right, left.range * right.range)

    def _divide(self, left: Term, right: Term) -> Term:
        range = left.range // right.range
        if left.range.low >= 0 and right.range.low > 0:
            return Term(self.lines.let(f"udiv i64 {left.name}, {right.name}"), range)
        _, quotient, correct = self._floor_parts(left, right)
        one = self.lines.let(f"zext i1 {correct} to i64")
        floor = self.lines.let(f"sub i64 {quotient}, {one}")
        if right.range.low > 0:
            return Term(floor, range)
        negated = self.lines.let(f"sub i64 0, {left.name}")  # the divisor -1 was replaced by 1
        turned = self.lines.let(f"icmp eq i64 {right.name}, -1")
        return Term(self.lines.let(f"select i1 {turned}, i64 {negated}, i64 {floor}"), range)

    def _modulo(self, left: Term, right: Term) -> Term:
        range = left.range % right.range
        if left.range.low >= 0 and right.range.low > 0:
            return Term(self.lines.let(f"urem i64 {left.name}, {right.name}"), range)
        divisor, _, correct = self._floor_parts(left, right)
        rest = self.lines.let(f"srem i64 {left.name}, {divisor}")
        shift = self.lines.let(f"select i1 {correct}, i64 {divisor}, i64 0")
        return Term(self.lines.let(f"add i64 {rest}, {shift}"), range)

    def _floor_parts(self, left: Term, right: Term) -> tuple[str, str, str]:
        """A divisor that cannot trap, the quotient towards 0, and whether that is 1 too much."""
        let = self.lines.let
        divisor = right.name
        if right.range.low <= 0:
            zero = let(f"icmp eq i64 {right.name}, 0")
            self._fail_if(zero)
            minus = let(f"icmp eq i64 {right.name}, -1")
            unsafe = let(f"or i1 {zero}, {minus}")
            divisor = let(f"select i1 {unsafe}, i64 1, i64 {right.name}")
        quotient = let(f"sdiv i64 {left.name}, {divisor}")
        rest = let(f"srem i64 {left.name}, {divisor}")
        inexact = let(f"icmp ne i64 {rest}, 0")
        signs = let(f"xor i64 {rest}, {divisor}")
        differ = let(f"icmp slt i64 {signs}, 0")
        return divisor, quotient, let(f"and i1 {inexact}, {differ}")

    def _extreme(self, function: str, left: Term, right: Term) -> Term:
        pick = min if function == "min" else max
        low, high = pick(left.range.low, right.range.low), pick(left.range.high, right.range.high)
        range = Interval(_bound(low), _bound(high))
        call = f"call i64 @llvm.s{function}.i64(i64 {left.name}, i64 {right.name})"
        return Term(self.lines.let(call), range)

    def _minimum(self, left: Term, right: Term) -> Term:
        return self._extreme("min", left, right)

    def _maximum(self, left: Term, right: Term) -> Term:
        return self._extreme("max", left, right)

    def _fail_if(self, flag: str) -> None:
        failed = self.overflow == "false"
        self.overflow = flag if failed else self.lines.let(f"or i1 {self.overflow}, {flag}")


_RULES: dict[str, Callable[[Arithmetic, Term, Term], Term]] = {
    "add": Arithmetic._add,
    "mul": Arithmetic._multiply,
    "floordiv": Arithmetic._divide,
    "mod": Arithmetic._modulo,
    "min": Arithmetic._minimum,
    "max": Arithmetic._maximum,
}

DECLARATIONS = """\
declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""


def _constant(value: int) -> Term:
    if abs(value) > LARGEST:
        raise InternalError(f"the number {value} in a size does not fit 64 bits")
    return Term(str(value), Interval(value, value))


def _fits(range: Interval) -> bool:
    return range.low >= -LARGEST and range.high <= LARGEST


def _bound(value: int | float) -> int | None:
    return value if isinstance(value, int) else None
