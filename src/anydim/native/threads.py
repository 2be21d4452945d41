"""A small fork-join pool in LLVM text: the same for every program, compiled once per machine.

The caller publishes a launch, takes parts itself, and waits for parts that workers have taken;
it never waits for a worker to wake. Part numbers are claimed from one 64-bit word that also holds
the number of the launch, so a late worker cannot take a part of another launch:

    state = launch number << 32 | parts << 16 | next part

A worker that finds nothing spins a while, then blocks. Blocking uses functions of the system
that come in through the pool (`runtime/threads.py` fills it). Whoever changes what a sleeper
waits for does so before it looks whether anybody sleeps; a sleeper counts itself before it looks
whether it may sleep; both with sequential consistency, so no wake-up is lost.
"""

from __future__ import annotations

LAUNCH, WORKER, WAKE, STOP = "anydim_launch", "anydim_worker", "anydim_wake", "anydim_stop"

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def threads_text(architecture: str) -> str:
    """The module for an architecture: that of a processor."""
    declaration, pause = _PAUSES.get(architecture, ("", "fence seq_cst"))
    return f"{declaration}\n{_TEXT.replace('PAUSE', pause)}"


_TEXT = """
; kernel, arguments, parallel, parts, scratch, bytes from one thread's scratch to the next
%job = type { ptr, ptr, i64, i64, ptr, i64 }

;  0 state, 2 parts done, 4 job        each on cache lines of its own
;  6 sleepers  7 wake-ups  8 the caller sleeps  9 stop  10 live workers  11 spins  12 threads
; 13 lock  14 unlock  15 wait  16 broadcast (functions)
; 17 mutex 18 condition of workers 19 condition of the caller
%pool = type { i64, [56 x i8], i64, [56 x i8], %job, [16 x i8],
               i64, i64, i64, i64, i64, i64, i64,
               ptr, ptr, ptr, ptr, ptr, ptr, ptr }

define internal i64 @claim(ptr %pool) nounwind {
entry:
  %first = load atomic i64, ptr %pool seq_cst, align 8
  br label %try
try:
  %state = phi i64 [ %first, %entry ], [ %seen, %take ]
  %next = and i64 %state, 65535
  %high = lshr i64 %state, 16
  %parts = and i64 %high, 65535
  %left = icmp ult i64 %next, %parts
  br i1 %left, label %take, label %none
take:
  %after = add i64 %state, 1
  %pair = cmpxchg ptr %pool, i64 %state, i64 %after seq_cst seq_cst
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %mine, label %try
mine:
  ret i64 %next
none:
  ret i64 -1
}

define internal i1 @has_work(ptr %pool) nounwind {
  %state = load atomic i64, ptr %pool seq_cst, align 8
  %next = and i64 %state, 65535
  %high = lshr i64 %state, 16
  %parts = and i64 %high, 65535
  %left = icmp ult i64 %next, %parts
  ret i1 %left
}

; take and do parts until none is left
define internal void @work(ptr %pool, i64 %thread) nounwind {
entry:
  %job = getelementptr %pool, ptr %pool, i32 0, i32 4
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %waiting.at = getelementptr %pool, ptr %pool, i32 0, i32 8
  br label %more
more:
  %part = call i64 @claim(ptr %pool)
  %none = icmp slt i64 %part, 0
  br i1 %none, label %end, label %do
do:
  %arguments.at = getelementptr %job, ptr %job, i32 0, i32 1
  %parallel.at = getelementptr %job, ptr %job, i32 0, i32 2
  %parts.at = getelementptr %job, ptr %job, i32 0, i32 3
  %scratch.at = getelementptr %job, ptr %job, i32 0, i32 4
  %stride.at = getelementptr %job, ptr %job, i32 0, i32 5
  %kernel = load ptr, ptr %job, align 8
  %arguments = load ptr, ptr %arguments.at, align 8
  %parallel = load i64, ptr %parallel.at, align 8
  %parts = load i64, ptr %parts.at, align 8
  %scratch = load ptr, ptr %scratch.at, align 8
  %stride = load i64, ptr %stride.at, align 8
  %offset = mul i64 %thread, %stride
  %own = getelementptr i8, ptr %scratch, i64 %offset
  %each = udiv i64 %parallel, %parts
  %extra = urem i64 %parallel, %parts
  %base = mul i64 %part, %each
  %before = call i64 @llvm.umin.i64(i64 %part, i64 %extra)
  %start = add i64 %base, %before
  %longer = icmp ult i64 %part, %extra
  %one = zext i1 %longer to i64
  %length = add i64 %each, %one
  %stop = add i64 %start, %length
  call void %kernel(ptr %arguments, i64 %start, i64 %stop, ptr %own)
  %count = atomicrmw add ptr %done, i64 1 seq_cst
  %now = add i64 %count, 1
  %last = icmp eq i64 %now, %parts
  br i1 %last, label %finish, label %more
finish:
  %waiting = load atomic i64, ptr %waiting.at seq_cst, align 8
  %asleep = icmp ne i64 %waiting, 0
  br i1 %asleep, label %tell, label %more
tell:
  call void @tell(ptr %pool, i32 19)
  br label %more
end:
  ret void
}

; wake everybody who waits on the condition that is field 18 or 19
define internal void @tell(ptr %pool, i32 %which) nounwind noinline {
  %lock.at = getelementptr %pool, ptr %pool, i32 0, i32 13
  %unlock.at = getelementptr %pool, ptr %pool, i32 0, i32 14
  %broadcast.at = getelementptr %pool, ptr %pool, i32 0, i32 16
  %mutex.at = getelementptr %pool, ptr %pool, i32 0, i32 17
  %workers.at = getelementptr %pool, ptr %pool, i32 0, i32 18
  %caller.at = getelementptr %pool, ptr %pool, i32 0, i32 19
  %of.workers = icmp eq i32 %which, 18
  %condition.at = select i1 %of.workers, ptr %workers.at, ptr %caller.at
  %lock = load ptr, ptr %lock.at, align 8
  %unlock = load ptr, ptr %unlock.at, align 8
  %broadcast = load ptr, ptr %broadcast.at, align 8
  %mutex = load ptr, ptr %mutex.at, align 8
  %condition = load ptr, ptr %condition.at, align 8
  %a = call i32 %lock(ptr %mutex)
  %b = call i32 %broadcast(ptr %condition)
  %c = call i32 %unlock(ptr %mutex)
  ret void
}

define internal void @wake_sleepers(ptr %pool) nounwind {
  %sleepers.at = getelementptr %pool, ptr %pool, i32 0, i32 6
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
  br i1 %any, label %tell, label %end
tell:
  call void @tell(ptr %pool, i32 18)
  br label %end
end:
  ret void
}

; work will come soon: sleeping workers get up and spin
define void @anydim_wake(ptr %pool) nounwind {
  %none = icmp eq ptr %pool, null
  br i1 %none, label %end, label %call
call:
  %wakes.at = getelementptr %pool, ptr %pool, i32 0, i32 7
  %old = atomicrmw add ptr %wakes.at, i64 1 seq_cst
  call void @wake_sleepers(ptr %pool)
  br label %end
end:
  ret void
}

; all workers leave
define void @anydim_stop(ptr %pool) nounwind {
  %stop.at = getelementptr %pool, ptr %pool, i32 0, i32 9
  store atomic i64 1, ptr %stop.at seq_cst, align 8
  call void @tell(ptr %pool, i32 18)
  ret void
}

; run a kernel over 0:parallel, on the caller alone or with the workers of the pool
define void @anydim_launch(ptr %pool, ptr %kernel, ptr %arguments, i64 %parallel, i64 %grain,
                           ptr %scratch, i64 %stride) nounwind {
entry:
  %some = icmp sgt i64 %parallel, 0
  br i1 %some, label %choose, label %end
choose:
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %serial, label %cut
cut:
  %threads.at = getelementptr %pool, ptr %pool, i32 0, i32 12
  %threads = load i64, ptr %threads.at, align 8
  %possible = udiv i64 %parallel, %grain
  %parts = call i64 @llvm.umin.i64(i64 %possible, i64 %threads)
  %few = icmp ult i64 %parts, 2
  br i1 %few, label %serial, label %fork
serial:
  tail call void %kernel(ptr %arguments, i64 0, i64 %parallel, ptr %scratch)
  ret void
fork:
  %job = getelementptr %pool, ptr %pool, i32 0, i32 4
  %arguments.at = getelementptr %job, ptr %job, i32 0, i32 1
  %parallel.at = getelementptr %job, ptr %job, i32 0, i32 2
  %parts.at = getelementptr %job, ptr %job, i32 0, i32 3
  %scratch.at = getelementptr %job, ptr %job, i32 0, i32 4
  %stride.at = getelementptr %job, ptr %job, i32 0, i32 5
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  store ptr %kernel, ptr %job, align 8
  store ptr %arguments, ptr %arguments.at, align 8
  store i64 %parallel, ptr %parallel.at, align 8
  store i64 %parts, ptr %parts.at, align 8
  store ptr %scratch, ptr %scratch.at, align 8
  store i64 %stride, ptr %stride.at, align 8
  store atomic i64 0, ptr %done seq_cst, align 8
  %state = load atomic i64, ptr %pool seq_cst, align 8
  %number = lshr i64 %state, 32
  %following = add i64 %number, 1
  %upper = shl i64 %following, 32
  %middle = shl i64 %parts, 16
  %fresh = or i64 %upper, %middle
  store atomic i64 %fresh, ptr %pool seq_cst, align 8
  fence seq_cst
  call void @wake_sleepers(ptr %pool)
  call void @work(ptr %pool, i64 0)
  call void @join(ptr %pool, i64 %parts)
  ret void
end:
  ret void
}

; wait until all parts are done: spin, then block
define internal void @join(ptr %pool, i64 %parts) nounwind {
entry:
  %done = getelementptr %pool, ptr %pool, i32 0, i32 2
  %spins.at = getelementptr %pool, ptr %pool, i32 0, i32 11
  %spins = load i64, ptr %spins.at, align 8
  %patience = mul i64 %spins, 4
  br label %look
look:
  %spin = phi i64 [ 0, %entry ], [ %spun, %pause ]
  %count = load atomic i64, ptr %done seq_cst, align 8
  %ready = icmp eq i64 %count, %parts
  br i1 %ready, label %end, label %again
again:
  %spun = add i64 %spin, 1
  %enough = icmp ugt i64 %spun, %patience
  br i1 %enough, label %block, label %pause
pause:
  PAUSE
  br label %look
block:
  %waiting.at = getelementptr %pool, ptr %pool, i32 0, i32 8
  %lock.at = getelementptr %pool, ptr %pool, i32 0, i32 13
  %unlock.at = getelementptr %pool, ptr %pool, i32 0, i32 14
  %wait.at = getelementptr %pool, ptr %pool, i32 0, i32 15
  %mutex.at = getelementptr %pool, ptr %pool, i32 0, i32 17
  %condition.at = getelementptr %pool, ptr %pool, i32 0, i32 19
  %lock = load ptr, ptr %lock.at, align 8
  %unlock = load ptr, ptr %unlock.at, align 8
  %wait = load ptr, ptr %wait.at, align 8
  %mutex = load ptr, ptr %mutex.at, align 8
  %condition = load ptr, ptr %condition.at, align 8
  %a = call i32 %lock(ptr %mutex)
  store atomic i64 1, ptr %waiting.at seq_cst, align 8
  fence seq_cst
  br label %check
check:
  %now = load atomic i64, ptr %done seq_cst, align 8
  %complete = icmp eq i64 %now, %parts
  br i1 %complete, label %awake, label %sleep
sleep:
  %b = call i32 %wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  store atomic i64 0, ptr %waiting.at seq_cst, align 8
  %c = call i32 %unlock(ptr %mutex)
  br label %end
end:
  ret void
}

; the life of a worker
define void @anydim_worker(ptr %pool, i64 %thread) nounwind {
entry:
  %stop.at = getelementptr %pool, ptr %pool, i32 0, i32 9
  %alive.at = getelementptr %pool, ptr %pool, i32 0, i32 10
  %spins.at = getelementptr %pool, ptr %pool, i32 0, i32 11
  %spins = load i64, ptr %spins.at, align 8
  br label %busy
busy:
  call void @work(ptr %pool, i64 %thread)
  br label %look
look:
  %spin = phi i64 [ 0, %busy ], [ %spun, %pause ]
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %ask
ask:
  %work = call i1 @has_work(ptr %pool)
  br i1 %work, label %busy, label %again
again:
  %spun = add i64 %spin, 1
  %enough = icmp ugt i64 %spun, %spins
  br i1 %enough, label %block, label %pause
pause:
  PAUSE
  br label %look
block:
  call void @sleep(ptr %pool)
  br label %busy
leave:
  %old = atomicrmw sub ptr %alive.at, i64 1 seq_cst
  ret void
}

; block until there is work, a wake-up or the end
define internal void @sleep(ptr %pool) nounwind noinline {
entry:
  %sleepers.at = getelementptr %pool, ptr %pool, i32 0, i32 6
  %wakes.at = getelementptr %pool, ptr %pool, i32 0, i32 7
  %stop.at = getelementptr %pool, ptr %pool, i32 0, i32 9
  %lock.at = getelementptr %pool, ptr %pool, i32 0, i32 13
  %unlock.at = getelementptr %pool, ptr %pool, i32 0, i32 14
  %wait.at = getelementptr %pool, ptr %pool, i32 0, i32 15
  %mutex.at = getelementptr %pool, ptr %pool, i32 0, i32 17
  %condition.at = getelementptr %pool, ptr %pool, i32 0, i32 18
  %lock = load ptr, ptr %lock.at, align 8
  %unlock = load ptr, ptr %unlock.at, align 8
  %wait = load ptr, ptr %wait.at, align 8
  %mutex = load ptr, ptr %mutex.at, align 8
  %condition = load ptr, ptr %condition.at, align 8
  %before = load atomic i64, ptr %wakes.at seq_cst, align 8
  %a = call i32 %lock(ptr %mutex)
  %b = atomicrmw add ptr %sleepers.at, i64 1 seq_cst
  br label %check
check:
  %work = call i1 @has_work(ptr %pool)
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %wakes = load atomic i64, ptr %wakes.at seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  %woken = icmp ne i64 %wakes, %before
  %first = or i1 %work, %stopped
  %up = or i1 %first, %woken
  br i1 %up, label %awake, label %wait.more
wait.more:
  %c = call i32 %wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  %d = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst
  %e = call i32 %unlock(ptr %mutex)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
"""
