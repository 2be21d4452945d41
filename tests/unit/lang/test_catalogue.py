"""Promise: every program of the catalogue agrees with numpy at 50 sizes, 0 and 1 among them.

One group, made while all sizes are symbols, serves all of them.
"""

import numpy as np
import pytest

from anydim.base.dtypes import from_numpy
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.group_text import parse_group
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition, print_group
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.lang.catalogue import PROGRAMS


def free_group(program):
    """The group of a program with every dim free from 0 up."""
    (definition,) = parse(program.text).values()
    types = [
        TensorType(from_numpy(np.dtype(dtype)), tuple(map(as_size, dims)))
        for dtype, dims in program.arguments
    ]
    box = Box.of(*(Dim(name, 0) for name in program.dims))
    return definition, instantiate(definition, types, {}, box)


@pytest.mark.sampled(most=14)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_agrees_with_numpy(program):
    definition, group = free_group(program)
    for sizes in program.sizes(50):
        arrays = program.arrays(sizes)
        tensors = {p.name: a for p, a in zip(definition.parameters, arrays)}
        results = list(evaluate(group, tensors, sizes).values())
        expected = program.expected(arrays)
        assert len(results) == len(expected)
        for result, wanted in zip(results, expected):
            assert result.shape == np.shape(wanted), sizes
            np.testing.assert_allclose(
                result, wanted, rtol=program.tolerance, atol=program.tolerance, err_msg=str(sizes)
            )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_texts_parse_back(program):
    definition, group = free_group(program)
    assert parse(print_definition(definition))[definition.name] == definition
    assert parse_group(print_group(group)) == group
