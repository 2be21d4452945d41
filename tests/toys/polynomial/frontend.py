"""A frontend: polynomials, and files of their coefficients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

import anydim as ad
from anydim.base.read_files import note_read
from anydim.compiler.frontends.frontend import Frontend
from anydim.compiler.graph.nodes import Graph
from anydim.sizes import Dim


@dataclass(frozen=True)
class Polynomial:
    """`coefficients[0] + coefficients[1] * x + ...`, of the elements of a vector."""

    coefficients: tuple[float, ...]


class PolynomialFrontend(Frontend):
    title = "a polynomial"
    accepts = ("a Polynomial", "the path of a .poly file")
    is_picklable = True

    def recognises(self, source: Any) -> bool:
        path = isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".poly")
        return path or isinstance(source, Polynomial)

    def contents(self, source: Any) -> bytes | None:
        return repr(source).encode()

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        if not isinstance(source, Polynomial):
            note_read(source)
            source = Polynomial(tuple(map(float, Path(source).read_text("utf-8").split())))
        g = ad.Builder("polynomial")
        bound = dims.get("n", Dim(0))
        x = g.input("x", ad.float32, (g.dim("n", bound.lo, bound.hi),))
        first, *others = map(numpy.float32, reversed(source.coefficients))
        y = x * 0.0 + first
        for coefficient in others:
            y = y * x + coefficient
        g.output("y", y)
        return g.graph()


POLYNOMIALS = PolynomialFrontend()
