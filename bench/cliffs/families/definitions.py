"""Texts of the language beside what numpy has for them."""

from __future__ import annotations

from typing import Any

import numpy

from bench.cliffs.family import Family, at

CSR = """def spmv(int(R1) ptr, int(E) col, float(E) val, float(C) x) -> (y) {
  y(r) +=! val(k) * x(col(k)) where r in 0:R1-1, k in ptr(r):ptr(r+1)
}"""


FAMILIES: tuple[Family, ...] = ()
