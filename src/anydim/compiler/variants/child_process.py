"""Ties a worker process to its parent: the worker exits as soon as its parent does.

On Linux the kernel kills it by the parent-death signal, which refers to the *thread* that started
it: one that lives as long as the process. The worker sets it before it imports anything, and before
it lowers its priority: on a busy core, imports of an idle-priority process take minutes. A parent
that exited before that is detected by `getppid`. Elsewhere a thread of the worker waits for the end
of its input and, as a forked child of the parent may hold the other end open, polls once a second
whether the parent exists.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

_NICE = 19
_LOOK = 1000  # milliseconds between two polls of the parent
_BEGINNING = """\
import ctypes, os
def is_there(pid):  # a zombie does not count
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
Tied = tuple[int, bool, Callable[[int], bool]]  # parent, killed by the kernel?, existence test


def beginning(parent: int, polite: bool) -> str:
    """The first lines of a worker's program, which set `tied` for `end_with_parent`.

    A `polite` worker runs at idle priority.
    """
    text = _BEGINNING.replace("PARENT", str(parent))
    return text + (_GIVE_WAY if polite else "")


def end_with_parent(tied: Tied) -> None:
    """Exit this process when its parent exits or its input closes, by a thread.

    LLVM releases the interpreter lock while it compiles, so the thread runs during work, too.
    """
    if hasattr(select, "poll"):
        threading.Thread(target=_look, args=tied, daemon=True).start()


def _look(parent: int, by_kernel: bool, is_there: Callable[[int], bool]) -> None:
    gone, before = select.poll(), os.getppid()
    gone.register(0, 0)  # hang-up is always reported
    while not gone.poll(None if by_kernel else _LOOK):
        if os.getppid() != before or not is_there(parent):
            break
    os._exit(0)
