"""Promise: whole networks give torch's results at every size, compiled once."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402
from tests.torch.nets import NETS, Net  # noqa: E402


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_network_equals_eager_at_many_sizes(net: Net) -> None:
    torch.manual_seed(0)
    module = net.module().eval()
    model = ad.compile(module, net.inputs(*net.example), dynamic_shapes=net.dynamic_shapes())
    for sizes in (net.example, *net.others, net.example):
        inputs = net.inputs(*sizes)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(*inputs))
            found = torch.utils._pytree.tree_leaves(model(*inputs))
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
