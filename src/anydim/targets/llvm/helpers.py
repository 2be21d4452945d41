"""Scalar functions with loops, written once into the modules that need them.

What they compute is exact, and rare enough to be done lane by lane: the remainder of floats and
powers of integers.
"""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.targets.llvm.emitter import Module
from anydim.targets.llvm.spelling import suffix, type_text

_FMOD = """
define internal {t} @{name}({t} %x, {t} %y) nounwind {{
entry:
  %a = call {t} @llvm.fabs.{s}({t} %x)
  %b = call {t} @llvm.fabs.{s}({t} %y)
  %finite = fcmp olt {t} %a, 0x7FF0000000000000
  %some = fcmp ogt {t} %b, 0.0
  %good = and i1 %finite, %some
  br i1 %good, label %check, label %bad
bad:
  ret {t} 0x7FF8000000000000
check:
  %smaller = fcmp olt {t} %a, %b
  br i1 %smaller, label %same, label %up
same:
  ret {t} %x
up:
  %d = phi {t} [ %b, %check ], [ %twice, %up ]
  %twice = fadd {t} %d, %d
  %more = fcmp ole {t} %twice, %a
  br i1 %more, label %up, label %down
down:
  %r = phi {t} [ %a, %up ], [ %rest, %down ]
  %e = phi {t} [ %d, %up ], [ %half, %down ]
  %fits = fcmp oge {t} %r, %e
  %less = fsub {t} %r, %e
  %rest = select i1 %fits, {t} %less, {t} %r
  %half = fmul {t} %e, 0.5
  %last = fcmp ole {t} %e, %b
  br i1 %last, label %done, label %down
done:
  %signed = call {t} @llvm.copysign.{s}({t} %rest, {t} %x)
  ret {t} %signed
}}"""

_POWER = """
define internal {t} @{name}({t} %x, {t} %y) nounwind {{
entry:
  %negative = icmp slt {t} %y, 0
  br i1 %negative, label %inverse, label %loop
inverse:
  %one = icmp eq {t} %x, 1
  %minus = icmp eq {t} %x, -1
  %bit = and {t} %y, 1
  %odd = icmp ne {t} %bit, 0
  %sign = select i1 %odd, {t} -1, {t} 1
  %whole = select i1 %minus, {t} %sign, {t} 0
  %value = select i1 %one, {t} 1, {t} %whole
  ret {t} %value
loop:
  %total = phi {t} [ 1, %entry ], [ %next, %loop ]
  %power = phi {t} [ %x, %entry ], [ %square, %loop ]
  %left = phi {t} [ %y, %entry ], [ %rest, %loop ]
  %low = and {t} %left, 1
  %use = icmp ne {t} %low, 0
  %product = mul {t} %total, %power
  %next = select i1 %use, {t} %product, {t} %total
  %square = mul {t} %power, %power
  %rest = lshr {t} %left, 1
  %more = icmp ne {t} %rest, 0
  br i1 %more, label %loop, label %done
done:
  ret {t} %next
}}"""


def remainder_function(module: Module, dtype: DType) -> str:
    """fmod of two scalars: subtracts y times powers of two, each step exact."""
    name = f"fmod.{dtype}"
    text, kind = type_text(dtype), suffix(dtype)
    module.declare(text, f"@llvm.fabs.{kind}", (text,))
    module.declare(text, f"@llvm.copysign.{kind}", (text, text))
    module.helpers.setdefault(name, _FMOD.format(t=text, s=kind, name=name))
    return name


def power_function(module: Module, dtype: DType) -> str:
    """x^y of two scalar integers by squaring, wrapping; a negative power of 2.. is 0."""
    name = f"power.{dtype}"
    text = _POWER.format(t=type_text(dtype), name=name)
    if dtype.kind == "uint":
        text = text.replace("icmp slt", "icmp ult")
    module.helpers.setdefault(name, text)
    return name
