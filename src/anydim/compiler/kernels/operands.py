"""The tensors that a kernel accesses: its operands, their buffers, the arguments of its launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from anydim.base.dtypes import uint8
from anydim.base.records import dataclass
from anydim.compiler.kernels.codegen.context import SizeParameters
from anydim.compiler.kernels.ir import (
    START,
    STOP,
    Function,
    Kernel,
    Library,
    Local,
    Operand,
    Pointer,
    Scalar,
    Step,
)
from anydim.compiler.kernels.launch import STATUS, STATUS_TENSOR, Argument, Launch
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.kernels.schedule import print_schedule
from anydim.lang.tree import Expr, Group, Tensor, TensorType
from anydim.lang.tree.affine import reads
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Condition, Size, as_size


@dataclass(frozen=True)
class Operands:
    """The inputs of a group that are read, then its results; last the status operand of failed
    checks.

    `buffers` maps tensors to their names in the kernel, `types` has all tensors of the group.
    """

    tensors: tuple[Tensor, ...]
    buffers: Mapping[str, str]
    types: Mapping[str, TensorType]
    operands: tuple[Operand, ...]
    arguments: tuple[Argument, ...]

    @staticmethod
    def of(
        group: Group, expressions: Iterable[Expr], buffers: Mapping[str, str] | None = None
    ) -> Operands:
        """Operands of a kernel that computes `expressions`; buffers are t0, t1, ... unless
        given."""
        expressions = tuple(expressions)
        used = {read.tensor for expr in expressions for read in reads(expr)}
        tensors = (*(t for t in group.inputs if t.name in used), *group.outputs)
        buffers = buffers or {tensor.name: f"t{number}" for number, tensor in enumerate(tensors)}
        written = {tensor.name for tensor in group.outputs}
        operands = [Operand(buffers[t.name], t.type.dtype, t.name in written) for t in tensors]
        arguments = [Argument(tensor.name) for tensor in tensors]
        if any(map(has_checks, expressions)):
            operands.append(STATUS)
            arguments.append(Argument(STATUS_TENSOR))
        every = (*group.inputs, *group.outputs, *group.temporaries)
        types = {tensor.name: tensor.type for tensor in every}
        return Operands(tensors, buffers, types, tuple(operands), tuple(arguments))

    def shared_buffers(self, in_place: Iterable[tuple[str, str]]) -> frozenset[str]:
        """The buffers of pairs of tensors that may share memory."""
        return frozenset(self.buffers[tensor] for pair in in_place for tensor in pair)

    def launch(
        self, name: str, sizes: SizeParameters, body: Iterable[Step], schedule: object,
        reason: str, *, parallel: Size, work: tuple[Size, Size], grain: Size | int = 1,
        scratch: Size | int = 0, in_place: tuple[tuple[str, str], ...] = (), group: int = 0,
        locals: Iterable[Local] = (), versions: tuple[tuple[str, Condition], ...] = (),
        kernel: Kernel | None = None,
    ) -> Launch:  # fmt: skip
        """A launch of a kernel with these operands and a `body` that uses these sizes.

        `work` is (operations, bytes moved); see `Launch` and `assemble` for the other parameters.
        A `kernel` of several functions replaces the one made of `body`.
        """
        shared = self.shared_buffers(in_place)
        kernel = kernel or assemble(name, self.operands, sizes.names, body, shared, group, locals)
        return Launch(
            kernel, self.arguments, sizes.sizes, parallel, grain, as_size(scratch), *work,
            print_schedule(schedule), reason, in_place=in_place, versions=versions,
        )  # fmt: skip


def assemble(
    name: str, operands: tuple[Operand, ...], sizes: Iterable[str], body: Iterable[Step],
    shared: Collection[str] = (), group: int = 0, locals: Iterable[Local] = (),
    libraries: Iterable[Library] = (),
) -> Kernel:  # fmt: skip
    """A kernel of one function with the parameters that every main function has.

    Operands in `shared` may alias. `group` work-items of an accelerator run it as a work-group that
    shares `locals`. The body calls functions of `libraries`.
    """
    sizes, locals = tuple(sizes), tuple(locals)
    parameters: tuple[Pointer | Scalar, ...] = (
        *(Pointer(each.name, each.dtype, alias=each.name in shared) for each in operands),
        *(Scalar(size) for size in (*sizes, START.name, STOP.name)),
        Pointer("scratch", uint8),
        *(Pointer(array.name, array.dtype) for array in locals),
    )
    main = Function("main", parameters, tuple(body))
    return named_kernel(name, operands, sizes, (main,), libraries, group, locals)
