"""How a worker process is tied to its parent: it ends with it, at once, whatever it does.

On Linux the kernel kills it by the parent-death signal, which is that of the *thread* that started
it: one that lives as long as its process does. The worker sets it before it imports anything, and
before it gives way to others: on a busy core, imports of an idle process take minutes. A parent
that ended before that is seen by `getppid`. Elsewhere a thread of the worker sees the end of its
input, and, as a child that the parent forked may hold the other end open, looks once a second
whether the parent is there.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

_NICE = 19
_LOOK = 1000  # milliseconds between two looks at the parent
_BEGINNING = """\
import ctypes, os
def is_there(pid):  # and has not ended without anybody who asks how
    try:
        os.kill(pid, 0)
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except OSError:
        return True
try:
    tied = ctypes.CDLL(None).prctl(1, 9, 0, 0, 0) == 0  # PR_SET_PDEATHSIG, SIGKILL
except Exception:
    tied = False
if os.name == "posix" and os.getppid() != PARENT:
    tied = False
    if not is_there(PARENT):  # otherwise another process started this one for it
        os._exit(0)
tied = PARENT, tied, is_there
"""
_GIVE_WAY = f"""\
try:
    os.setpriority(os.PRIO_PROCESS, 0, {_NICE})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
except (OSError, AttributeError):
    pass
"""
Tied = tuple[
    int, bool, Callable[[int], bool]
]  # to which parent, by the kernel?, is a process there


def beginning(parent: int, polite: bool) -> str:
    """The first lines of a worker of a process, which set `tied` for `end_with_parent`.

    A `polite` one leaves the cores to whoever else wants them.
    """
    text = _BEGINNING.replace("PARENT", str(parent))
    return text + (_GIVE_WAY if polite else "")


def end_with_parent(tied: Tied) -> None:
    """End this process when its parent has ended, or its input, by a thread.

    The interpreter is free while LLVM compiles, so the thread runs in mid-work, too.
    """
    if hasattr(select, "poll"):
        threading.Thread(target=_look, args=tied, daemon=True).start()


def _look(parent: int, by_kernel: bool, is_there: Callable[[int], bool]) -> None:
    gone, before = select.poll(), os.getppid()
    gone.register(0, 0)  # hanging up is always told
    while not gone.poll(None if by_kernel else _LOOK):
        if os.getppid() != before or not is_there(parent):
            break
    os._exit(0)
