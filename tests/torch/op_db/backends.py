"""What runs an exported program: a function of tensors, made from a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

Run = Callable[[tuple[torch.Tensor, ...]], list[Any]]


class Refused(Exception):
    """The backend says that it does not support a program."""


def anydim(program: Any) -> Run:
    """anydim's compiler; sizes are free within the program's ranges."""
    import anydim as ad

    try:
        model = ad.compile(program)
    except ad.UserError as error:
        raise Refused(str(error)) from None

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        return tree_leaves(model(*tensors))

    return run


def eager(program: Any) -> Run:
    """torch itself, on the exported program."""
    module = program.module(check_guards=False)

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        made = module(*tensors)
        return list(torch.utils._pytree.tree_leaves(made))

    return run


def openvino(program: Any) -> Run:
    """OpenVINO's frontend of exported programs and its CPU plugin, in float32."""
    import openvino as ov

    try:
        converted = ov.convert_model(program)
        core = ov.Core()
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        model = core.compile_model(converted, "CPU", options)
    except Exception as error:
        raise Refused(_short(error)) from None

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        found = model([tensor.contiguous().numpy() for tensor in tensors])
        return [torch.from_numpy(found[output].copy()) for output in model.outputs]

    return run


def tvm(program: Any) -> Run:
    """TVM's Relax frontend of exported programs, built for LLVM."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    try:
        built = tvm.compile(from_exported_program(program), target="llvm")
        call = relax.VirtualMachine(built, tvm.cpu())["main"]
    except Exception as error:
        raise Refused(_short(error)) from None

    def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        found = call(*(tvm.runtime.from_dlpack(tensor.contiguous()) for tensor in tensors))
        parts = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return [torch.from_dlpack(each) for each in parts]

    return run


def _short(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[-1].strip()}"


BACKENDS: dict[str, Callable[[Any], Run]] = {
    "anydim": anydim, "eager": eager, "openvino": openvino, "tvm": tvm,
}  # fmt: skip
