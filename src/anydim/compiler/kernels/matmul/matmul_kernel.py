"""Base class of product kernels: operands, functions, launch; addresses of packed constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from anydim.base.dtypes import DType, uint8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import index_sum
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.launch import Argument, Launch, Machine, moved_bytes
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output, read_by
from anydim.compiler.kernels.matmul.epilogue_loop import epilogue_function
from anydim.compiler.kernels.matmul.window_geometry import InLoops
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.kernels.schedule import print_schedule
from anydim.lang.tree import Group, TensorType
from anydim.runtime.panels import Packing
from anydim.sizes import Condition, Size, as_size

BACKWARDS = "backwards"  # the size that is 1 where blocks of columns run in reverse order


class ProductKernel(ABC):
    """Writes the functions of a kernel, and collects the sizes they need.

    `name` is the prefix of the kernel's name. `roles` are (tensor, operand) pairs; `packed` maps
    packed operands to their types; `buffers` maps unpacked tensors to their operands. `grain`,
    `in_place` and `versions` are as in `Launch`. An `ordered` kernel has one more size at the end,
    `BACKWARDS`.
    """

    name: str
    grain: int
    ordered: bool = False
    libraries: tuple[ir.Library, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, Condition], ...] = ()
    packed: Mapping[str, DType] = {}
    roles: Sequence[tuple[str, str]]
    buffers: Mapping[str, str]

    def __init__(
        self, group: Group, outputs: tuple[Output, ...], dtype: DType, lanes: int,
        sizes: SizeParameters,
    ) -> None:  # fmt: skip
        self.group, self.outputs, self.dtype, self.lanes = group, outputs, dtype, lanes
        self.sizes = sizes

    @abstractmethod
    def functions(self) -> tuple[ir.Function, ...]:
        """Return all functions of the kernel, main last."""

    @property
    @abstractmethod
    def parallel(self) -> Size:
        """The range of the launch."""

    @property
    @abstractmethod
    def scratch(self) -> Size:
        """Bytes of scratch memory."""

    @property
    def moved(self) -> Size:
        """Bytes read and written."""
        return moved_bytes(self.group)

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        """The kernel's operands, in the order of their roles."""
        written = {output.tensor for output in self.outputs}
        return tuple(
            ir.Operand(role, self.packed.get(role, self.group.type_of(tensor).dtype),
                       tensor in written)
            for tensor, role in self.roles
        )  # fmt: skip

    @property
    def pointers(self) -> tuple[ir.Pointer, ...]:
        """The operands as function parameters."""
        shared = {self.buffers[tensor] for pair in self.in_place for tensor in pair}
        return tuple(ir.Pointer(o.name, o.dtype, o.written or o.name in shared)
                     for o in self.operands)  # fmt: skip

    @property
    def _size_names(self) -> tuple[str, ...]:
        return (*self.sizes.names, BACKWARDS) if self.ordered else self.sizes.names

    def main(self, body: Sequence[ir.Step]) -> ir.Function:
        """Return the function that a launch calls; call it after all sizes are collected."""
        scalars = map(ir.Scalar, (*self._size_names, ir.START.name, ir.STOP.name))
        scratch = ir.Pointer("scratch", uint8)
        return ir.Function(self.name, (*self.pointers, *scalars, scratch), tuple(body))

    def make_epilogue(self, form: InLoops, machine: Machine) -> ir.Function:
        """Return the epilogue function of a tile, see `epilogue_loop.py`."""
        types = {t.name: t.type for t in (*self.group.inputs, *self.group.outputs)}
        types[PRODUCT] = TensorType(self.dtype, ())
        context, loops = Context(types, self.sizes, machine, self.buffers), dict(form.extents)
        given = self.outputs, self.dtype, self.lanes, tuple(loops)
        return epilogue_function(*given, context, self.pointers)

    def at(self, start: Size | int, steps: Iterable[tuple[str, Size]]) -> ir.Value:
        """Return start plus, for each loop, its index times its stride in elements."""
        value = self.sizes.value
        return index_sum(value(start), *(variable(name) * value(by) for name, by in steps))

    def launch(
        self, schedule: object, packings: Mapping[str, Packing | None], work: Size, reason: str
    ) -> Launch:
        """Return the launch of `work` multiply-adds; `packings` are those of operands."""
        functions, sizes = self.functions(), self.sizes.sizes
        return Launch(
            kernel=named_kernel(
                self.name, self.operands, self._size_names, functions, self.libraries
            ),
            arguments=tuple(Argument(tensor, packings.get(role)) for tensor, role in self.roles),
            sizes=(*sizes, as_size(0)) if self.ordered else sizes,
            parallel=self.parallel,
            grain=self.grain,
            scratch=self.scratch,
            flops=2 * work,
            moved=self.moved,
            schedule=print_schedule(schedule),
            reason=reason,
            order=len(sizes) if self.ordered else None,
            in_place=self.in_place,
            versions=self.versions,
        )


def shared_library(
    name: str, dtype: DType, made: Callable[[], tuple[ir.Function, ...]]
) -> ir.Library:
    """Return a library that its name identifies, of functions of elements of a type."""
    return ir.Library(name, made, name, dtype in ir.PORTABLE)


def function_library(
    name: str, parameters: Iterable[ir.Pointer | ir.Scalar], write: Callable[[Writer], None],
    dtype: DType | None = None, scalars: Iterable[str] = (), dots: bool = False,
) -> ir.Library:  # fmt: skip
    """Return a library of one function `name`; `write` emits its body on demand.

    The size parameters `scalars` follow the others; `dots`: the function has products of bytes.
    """
    own = (*parameters, *map(ir.Scalar, scalars))

    def make_functions() -> tuple[ir.Function, ...]:
        code = Writer()
        write(code)
        return (ir.Function(name, own, code.written, public=True),)

    return ir.Library(name, make_functions, name, dtype in ir.PORTABLE, dots)


def call(function: ir.Function, **own: ir.Value | ir.Address) -> ir.Call:
    """Return a call that passes the caller's variables of the same names, except for `own`."""
    arguments: list[ir.Value | ir.Address] = []
    for parameter in function.parameters:
        if parameter.name in own:
            arguments.append(own[parameter.name])
        elif isinstance(parameter, ir.Pointer):
            arguments.append(ir.Address(parameter.name, constant(0)))
        else:
            arguments.append(ir.Var(parameter.type, parameter.name))
    return ir.Call(function.name, tuple(arguments))


def packed_at(
    loops: Sequence[tuple[str, Size]], group: Size | int, role: Callable[[str, Size], ir.Value]
) -> list[ir.Value]:
    """Return the offset terms of the loops in a packed constant with one `group` per iteration."""
    terms: list[ir.Value] = []
    inner = as_size(1)
    for name, extent in reversed(loops):
        terms.append(variable(name) * role(f"{name}_packed", inner * group))
        inner = inner * extent
    return terms


def roles_of(
    factors: Iterable[tuple[str, str]], packed: Iterable[str], read: Iterable[str],
    written: Iterable[str],
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:  # fmt: skip
    """Return (tensor, operand) of factors, other reads and results; and the operand of each tensor.

    A packed factor is an operand of its own; any other tensor is one operand for all its reads.
    """
    packed_roles = set(packed)
    roles: list[tuple[str, str]] = []
    buffers: dict[str, str] = {}
    for tensor, role in factors:
        if role in packed_roles or tensor not in buffers:
            roles.append((tensor, role))
        if role not in packed_roles:
            buffers.setdefault(tensor, role)
    for letter, tensors in (("r", read), ("y", written)):
        for tensor in tensors:
            if tensor not in buffers:
                buffers[tensor] = f"{letter}{len(roles)}"
                roles.append((tensor, buffers[tensor]))
    return tuple(roles), buffers


def roles_of_form(
    form: ContractionForm, packed: Collection[str] = ()
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """Return the roles of the form's tensors and their buffers; `b` may be packed."""
    read = read_by(form.outputs)
    read += [] if form.start is None else [form.start.tensor]
    written = [output.tensor for output in form.outputs]
    return roles_of(((form.a, "a"), (form.b, "b")), packed, read, written)
