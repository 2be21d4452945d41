"""Functions that LLVM calls in code for a system, and no object of a program defines."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.compiler.targets.target import Source
from anydim.runtime.systems import System

# Windows adds a page to a stack when the one above it is touched, so that a large frame touches
# each from the top. rax has the bytes of the frame; all registers keep their values.
_TOUCH = """
    51 50            # push rcx; push rax
    483d00100000     # cmp rax, 4096
    488d4c2418       # lea rcx, [rsp + 24]: the caller's
    7219             # jb 2
    4881e900100000   # 1: sub rcx, 4096
    48830900         # or qword [rcx], 0
    482d00100000     # sub rax, 4096
    483d00100000     # cmp rax, 4096
    77e7             # ja 1
    4829c1           # 2: sub rcx, rax
    48830900         # or qword [rcx], 0
    58 59 c3         # pop rax; pop rcx; ret
"""
_FUNCTIONS = {"windows": {"___chkstk_ms": _TOUCH}}


def support_modules(system: System) -> Mapping[str, Source]:
    """Return the modules of a system, by the name of their function."""
    functions = _FUNCTIONS.get(system.name, {})
    return {name: Source.of(_module(name, text)) for name, text in functions.items()}


def _module(name: str, text: str) -> str:
    """Return a module with machine code: LLVM assembles only with parsers that are not loaded."""
    code = bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))
    data = "".join(f"\\{byte:02x}" for byte in code)
    kind = f"[{len(code)} x i8]"
    return f'@{name} = constant {kind} c"{data}", section ".text.{name}", align 16\n'
