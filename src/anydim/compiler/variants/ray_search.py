"""Tuning on the machines of a Ray cluster (extra `anydim[ray]`), which have anydim installed.

Measurements of another machine apply to this one only if its processor is of the same kind: only
machines with the same target name and the same version of anydim search.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from importlib import import_module
from itertools import cycle
from typing import Any

from anydim.base import settings
from anydim.base.cache import code_version
from anydim.base.errors import OptionError
from anydim.compiler.targets.targets import target
from anydim.compiler.variants.ledger import name_of
from anydim.compiler.variants.workers import Order, Reply, variables, workers

_PROBED = 120.0  # seconds to wait for the identities of machines
_HERE = ("ANYDIM_CACHE_DIR", "ANYDIM_USE_CACHE")  # settings that are local to each machine


class RayTeam:
    """A team for `Model.tune`: one concurrent search per core of matching machines.

    `address` is the address of a cluster; None uses the connected one, or starts one on this
    machine. Raises OptionError if Ray is not installed or does not answer.
    """

    def __init__(self, address: str | None = None, made_by: str | None = None) -> None:
        self._ray = ray = _ray()
        name = settings.target if made_by is None else made_by
        self._kind = identity(name)
        try:
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, include_dashboard=False)
            nodes = [node for node in ray.nodes() if node["Alive"]]
            kinds = [self._on(node, identity).remote(name) for node in nodes]
            found = ray.get(kinds, timeout=_PROBED)
        except Exception as error:  # Ray raises many types
            raise OptionError(f"no Ray cluster answers: {_line(error)}") from None
        fitting = [node for node, kind in zip(nodes, found) if kind == self._kind]
        if not fitting:
            hint = "its machines need this processor and this version of anydim"
            raise OptionError(f"none of {len(nodes)} machines of the cluster is suitable", hint)
        cores = [max(1, int(node["Resources"].get("CPU", 1))) for node in fitting]
        self.machines, self.others = len(fitting), len(nodes) - len(fitting)
        self.count = sum(cores)
        self._nodes = cycle([node for node, count in zip(fitting, cores) for _ in range(count)])

    def submit(self, order: Order) -> Future[Reply]:
        """Submit an order to one of the machines."""
        promised: Future[Reply] = Future()
        search = self._on(next(self._nodes), run_order)

        def take(done: Future[Any]) -> None:
            try:
                promised.set_result(done.result())
            except Exception as error:  # a machine was lost, or any other failure of Ray
                promised.set_result(Reply(problem=_line(error)))

        search.remote(order, self._kind).future().add_done_callback(take)
        return promised

    def _on(self, node: Mapping[str, Any], function: Any) -> Any:
        """A remote function pinned to a machine."""
        made = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        given = {knob: value for knob, value in variables().items() if knob not in _HERE}
        return self._ray.remote(function).options(
            scheduling_strategy=made(node["NodeID"], soft=False), num_cpus=1,
            runtime_env={"env_vars": given},
        )  # fmt: skip


def identity(made_by: str) -> str:
    """The processor and the anydim version of this machine, as in the ledger."""
    return f"{name_of(target(made_by))} {code_version()}"


def run_order(order: Order, kind: str) -> Reply:
    """Execute an order on this machine, if it is still of the right kind.

    Runs in a worker process of anydim: in a process of Ray, code and data may be too far apart for
    relocations.
    """
    here = identity(order.target)
    if here != kind:
        raise OptionError(f"this machine is {here}, not {kind}")
    return workers(False, 1).submit(order).result()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise OptionError("Ray is not installed", "pip install anydim[ray]") from None


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
