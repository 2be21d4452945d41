"""Emits inter-thread steps: atomic operations, fences, pauses; all are sequentially consistent."""

from __future__ import annotations

from anydim.base.dtypes import int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.llvm.values import Values

_HINTS = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (("i32", "1"),)),
}


class ThreadSteps:
    """Methods of `steps.Steps` for these steps."""

    values: Values

    def _atomic(self, step: ir.Atomic) -> None:
        wanted = ir.ATOMIC.get(step.operation)
        if wanted != len(step.arguments):
            raise InternalError(f"no atomic '{step.operation}' of {len(step.arguments)} arguments")
        values, emitter = self.values, self.values.emitter
        pointer = values.pointer_at(step.address, ir.Const(ir.INDEX, 0), int64)
        given = [values.value(argument) for argument in step.arguments]
        if step.operation == "store":
            emitter.write(f"store atomic i64 {given[0]}, ptr {pointer} seq_cst, align 8")
            return
        if step.operation == "load":
            before = emitter.once(f"load atomic i64, ptr {pointer} seq_cst, align 8")
        elif step.operation == "add":
            before = emitter.once(f"atomicrmw add ptr {pointer}, i64 {given[0]} seq_cst, align 8")
        else:
            old, new = given
            call = f"cmpxchg ptr {pointer}, i64 {old}, i64 {new} seq_cst seq_cst, align 8"
            before = emitter.once(f"extractvalue {{ i64, i1 }} {emitter.once(call)}, 0")
        if step.result is not None:
            values.names[step.result.name] = before

    def _fence(self, step: ir.Fence) -> None:
        self.values.emitter.write("fence seq_cst")

    def _pause(self, step: ir.Pause) -> None:
        """Emit a spin-wait hint; a fence if the processor has none."""
        emitter = self.values.emitter
        name, arguments = _HINTS.get(emitter.module.processor.architecture, ("", ()))
        emitter.write(emitter.call_text("void", name, arguments) if name else "fence seq_cst")
