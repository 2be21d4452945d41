; Functions of the thread pool that block (`native/threads.py`), with int64 addresses.
;
; A mutex is a word, 1: taken. It is held for some instructions, so a thread spins for it. A condition
; is a number, which each notification increments, and behind it whether its waiters may block: the
; main thread of a page may not. A wait that does not block returns, and its caller checks again.

declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)

define void @anydim_lock(i64 %word) #0 {
entry:
  %mutex = inttoptr i64 %word to ptr
  br label %again
again:
  %before = atomicrmw xchg ptr %mutex, i32 1 seq_cst, align 4
  %free = icmp eq i32 %before, 0
  br i1 %free, label %done, label %again
done:
  ret void
}

define void @anydim_unlock(i64 %word) #0 {
  %mutex = inttoptr i64 %word to ptr
  store atomic i32 0, ptr %mutex seq_cst, align 4
  ret void
}

define void @anydim_wait(i64 %condition, i64 %mutex) #0 {
entry:
  %number = inttoptr i64 %condition to ptr
  %flag = getelementptr i32, ptr %number, i32 1
  %blocks = load i32, ptr %flag, align 4
  %seen = load atomic i32, ptr %number seq_cst, align 4
  call void @anydim_unlock(i64 %mutex)
  %may = icmp ne i32 %blocks, 0
  br i1 %may, label %block, label %done
block:
  %how = call i32 @llvm.wasm.memory.atomic.wait32(ptr %number, i32 %seen, i64 -1)
  br label %done
done:
  call void @anydim_lock(i64 %mutex)
  ret void
}

define void @anydim_broadcast(i64 %condition) #0 {
  %number = inttoptr i64 %condition to ptr
  %before = atomicrmw add ptr %number, i32 1 seq_cst, align 4
  %count = call i32 @llvm.wasm.memory.atomic.notify(ptr %number, i32 -1)
  ret void
}

define i64 @anydim_yield() #0 {
  ret i64 0
}

attributes #0 = { nounwind }
