"""Blocks of memory for values that cross steps, in LLVM text: the same for every program.

A block has a head (`runtime/context.py`), then its bytes, 64-byte aligned. It counts who holds it;
when nobody does, it is kept for the next one who asks for about as much. All blocks in use are in a
list, so that nothing is lost when a call ends early. What is in use and what is kept never take
more together than what was in use at some time: for a new block, kept ones go back to the system.

    ptr  anydim_allocate(call, bytes)     a block that one holds; null: no memory
    void anydim_hold(block)               one more holds it; null is nobody's
    void anydim_drop(call, block)         one less
    ptr  anydim_arena(call, bytes)        at least so many bytes; what they held before is lost
    i1   anydim_grow(call, words of data, block and room, used, bytes)
                                          room for one more than `used` items of so many bytes
    ptr  anydim_leave(call, block)        take it out: it belongs to somebody else
    i64  anydim_clear(call)               drop everything in use; how many blocks that was
    void anydim_trim(call, bytes)         keep no more than so many bytes
"""

from __future__ import annotations

import re

from anydim.runtime import context

CLEAR, TRIM, LEAVE, DROP = "anydim_clear", "anydim_trim", "anydim_leave", "anydim_drop"

DECLARATIONS = """\
declare ptr @anydim_allocate(ptr, i64)
declare void @anydim_hold(ptr)
declare void @anydim_drop(ptr, ptr)
declare ptr @anydim_arena(ptr, i64)
declare i1 @anydim_grow(ptr, ptr, ptr, ptr, i64, i64)
"""

_WORD = re.compile(r"#([A-Z_]+)")


def blocks_text() -> str:
    """The module."""
    return _WORD.sub(lambda found: str(getattr(context, found[1])), _TEXT)


_TEXT = """
define ptr @anydim_allocate(ptr %call, i64 %wanted) nounwind {
entry:
  %strange = icmp ugt i64 %wanted, 1152921504606846976
  br i1 %strange, label %none, label %sane
sane:
  %padded = add i64 %wanted, 63
  %whole = and i64 %padded, -64
  %bytes = call i64 @llvm.umax.i64(i64 %whole, i64 64)
  %zeros = call i64 @llvm.ctlz.i64(i64 %bytes, i1 true)
  %bin = sub i64 63, %zeros
  %bins = getelementptr i64, ptr %call, i64 #BINS
  %first.at = getelementptr ptr, ptr %bins, i64 %bin
  br label %look
look:
  %link = phi ptr [ %first.at, %sane ], [ %next.at, %other ], [ %second.at, %larger ]
  %tries = phi i64 [ 8, %sane ], [ %fewer, %other ], [ 8, %larger ]
  %last = phi i1 [ false, %sane ], [ %last, %other ], [ true, %larger ]
  %kept = load ptr, ptr %link, align 8
  %nothing = icmp eq ptr %kept, null
  br i1 %nothing, label %ended, label %fits
ended:
  br i1 %last, label %miss, label %larger
larger:
  %second.at = getelementptr ptr, ptr %first.at, i64 1
  br label %look
fits:
  %has.at = getelementptr i64, ptr %kept, i64 #BYTES
  %has = load i64, ptr %has.at, align 8
  %twice = shl i64 %bytes, 1
  %enough = icmp uge i64 %has, %bytes
  %modest = icmp ule i64 %has, %twice
  %good = and i1 %enough, %modest
  br i1 %good, label %hit, label %other
other:
  %next.at = getelementptr i64, ptr %kept, i64 #NEXT
  %fewer = sub i64 %tries, 1
  %tired = icmp eq i64 %fewer, 0
  br i1 %tired, label %ended, label %look
hit:
  %after.at = getelementptr i64, ptr %kept, i64 #NEXT
  %after = load ptr, ptr %after.at, align 8
  store ptr %after, ptr %link, align 8
  call void @count(ptr %call, i64 #CACHED_BYTES, i64 %has, i64 -1)
  br label %take
miss:
  call void @make_room(ptr %call, i64 %bytes, i64 %bin)
  %fresh = call ptr @from_system(ptr %call, i64 %bytes)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %again, label %take
again:
  call void @anydim_trim(ptr %call, i64 0)
  %second = call ptr @from_system(ptr %call, i64 %bytes)
  %hopeless = icmp eq ptr %second, null
  br i1 %hopeless, label %none, label %take
take:
  %block = phi ptr [ %kept, %hit ], [ %fresh, %miss ], [ %second, %again ]
  call void @enlist(ptr %call, ptr %block)
  ret ptr %block
none:
  ret ptr null
}

; a word of the call plus times * amount; the new value
define internal i64 @counted(ptr %call, i64 %word, i64 %amount, i64 %times) nounwind {
  %at = getelementptr i64, ptr %call, i64 %word
  %old = load i64, ptr %at, align 8
  %change = mul i64 %amount, %times
  %new = add i64 %old, %change
  store i64 %new, ptr %at, align 8
  ret i64 %new
}

define internal void @count(ptr %call, i64 %word, i64 %amount, i64 %times) nounwind {
  %new = call i64 @counted(ptr %call, i64 %word, i64 %amount, i64 %times)
  ret void
}

define internal ptr @from_system(ptr %call, i64 %bytes) nounwind {
entry:
  %malloc.at = getelementptr i64, ptr %call, i64 #MALLOC
  %malloc = load ptr, ptr %malloc.at, align 8
  %all = add i64 %bytes, 128
  %memory = call ptr %malloc(i64 %all)
  %failed = icmp eq ptr %memory, null
  br i1 %failed, label %none, label %some
some:
  %address = ptrtoint ptr %memory to i64
  %up = add i64 %address, 63
  %aligned = and i64 %up, -64
  %shift = sub i64 %aligned, %address
  %block = getelementptr i8, ptr %memory, i64 %shift
  store ptr %memory, ptr %block, align 8
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  store i64 %bytes, ptr %bytes.at, align 8
  ret ptr %block
none:
  ret ptr null
}

; first of the list of blocks in use, held by one
define internal void @enlist(ptr %call, ptr %block) nounwind {
entry:
  %live.at = getelementptr i64, ptr %call, i64 #LIVE
  %head = load ptr, ptr %live.at, align 8
  %next.at = getelementptr i64, ptr %block, i64 #NEXT
  %previous.at = getelementptr i64, ptr %block, i64 #PREVIOUS
  %references.at = getelementptr i64, ptr %block, i64 #REFERENCES
  store ptr %head, ptr %next.at, align 8
  store ptr null, ptr %previous.at, align 8
  store i64 1, ptr %references.at, align 8
  store ptr %block, ptr %live.at, align 8
  %alone = icmp eq ptr %head, null
  br i1 %alone, label %sum, label %others
others:
  %back.at = getelementptr i64, ptr %head, i64 #PREVIOUS
  store ptr %block, ptr %back.at, align 8
  br label %sum
sum:
  call void @count(ptr %call, i64 #COUNT, i64 1, i64 1)
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  %bytes = load i64, ptr %bytes.at, align 8
  %live = call i64 @counted(ptr %call, i64 #LIVE_BYTES, i64 %bytes, i64 1)
  %peak.at = getelementptr i64, ptr %call, i64 #PEAK
  %limit.at = getelementptr i64, ptr %call, i64 #LIMIT
  %peak = load i64, ptr %peak.at, align 8
  %limit = load i64, ptr %limit.at, align 8
  %peak.now = call i64 @llvm.umax.i64(i64 %peak, i64 %live)
  %limit.now = call i64 @llvm.umax.i64(i64 %limit, i64 %live)
  store i64 %peak.now, ptr %peak.at, align 8
  store i64 %limit.now, ptr %limit.at, align 8
  ret void
}

define internal void @delist(ptr %call, ptr %block) nounwind {
entry:
  %next.at = getelementptr i64, ptr %block, i64 #NEXT
  %previous.at = getelementptr i64, ptr %block, i64 #PREVIOUS
  %live.at = getelementptr i64, ptr %call, i64 #LIVE
  %next = load ptr, ptr %next.at, align 8
  %previous = load ptr, ptr %previous.at, align 8
  %first = icmp eq ptr %previous, null
  %before.at = getelementptr i64, ptr %previous, i64 #NEXT
  %link = select i1 %first, ptr %live.at, ptr %before.at
  store ptr %next, ptr %link, align 8
  %last = icmp eq ptr %next, null
  br i1 %last, label %sum, label %others
others:
  %back.at = getelementptr i64, ptr %next, i64 #PREVIOUS
  store ptr %previous, ptr %back.at, align 8
  br label %sum
sum:
  call void @count(ptr %call, i64 #COUNT, i64 1, i64 -1)
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  %bytes = load i64, ptr %bytes.at, align 8
  call void @count(ptr %call, i64 #LIVE_BYTES, i64 %bytes, i64 -1)
  ret void
}

; out of use, into the bin of its size
define internal void @shelve(ptr %call, ptr %block) nounwind {
  call void @delist(ptr %call, ptr %block)
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  %bytes = load i64, ptr %bytes.at, align 8
  %zeros = call i64 @llvm.ctlz.i64(i64 %bytes, i1 true)
  %bin = sub i64 63, %zeros
  %bins = getelementptr i64, ptr %call, i64 #BINS
  %first.at = getelementptr ptr, ptr %bins, i64 %bin
  %first = load ptr, ptr %first.at, align 8
  %next.at = getelementptr i64, ptr %block, i64 #NEXT
  store ptr %first, ptr %next.at, align 8
  store ptr %block, ptr %first.at, align 8
  call void @count(ptr %call, i64 #CACHED_BYTES, i64 %bytes, i64 1)
  ret void
}

; give kept blocks back until `bytes` more stay within the limit
define internal void @make_room(ptr %call, i64 %bytes, i64 %bin) nounwind {
  %live.at = getelementptr i64, ptr %call, i64 #LIVE_BYTES
  %limit.at = getelementptr i64, ptr %call, i64 #LIMIT
  %live = load i64, ptr %live.at, align 8
  %limit = load i64, ptr %limit.at, align 8
  %used = add i64 %live, %bytes
  %left = call i64 @llvm.usub.sat.i64(i64 %limit, i64 %used)
  call void @give_back(ptr %call, i64 %left, i64 %bin)
  ret void
}

define void @anydim_trim(ptr %call, i64 %bytes) nounwind {
  call void @give_back(ptr %call, i64 %bytes, i64 63)
  ret void
}

; keep at most `most` bytes; bins from `start` down, then round
define internal void @give_back(ptr %call, i64 %most, i64 %start) nounwind {
entry:
  %cached.at = getelementptr i64, ptr %call, i64 #CACHED_BYTES
  %bins = getelementptr i64, ptr %call, i64 #BINS
  %free.at = getelementptr i64, ptr %call, i64 #FREE
  %free = load ptr, ptr %free.at, align 8
  br label %look
look:
  %turn = phi i64 [ 0, %entry ], [ %following, %empty ], [ %turn, %one ]
  %cached = load i64, ptr %cached.at, align 8
  %fine = icmp ule i64 %cached, %most
  br i1 %fine, label %end, label %search
search:
  %down = sub i64 %start, %turn
  %bin = and i64 %down, 63
  %first.at = getelementptr ptr, ptr %bins, i64 %bin
  %block = load ptr, ptr %first.at, align 8
  %none = icmp eq ptr %block, null
  br i1 %none, label %empty, label %one
empty:
  %following = add i64 %turn, 1
  %over = icmp ugt i64 %following, 63
  br i1 %over, label %end, label %look
one:
  %next.at = getelementptr i64, ptr %block, i64 #NEXT
  %next = load ptr, ptr %next.at, align 8
  store ptr %next, ptr %first.at, align 8
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  %bytes = load i64, ptr %bytes.at, align 8
  call void @count(ptr %call, i64 #CACHED_BYTES, i64 %bytes, i64 -1)
  %memory = load ptr, ptr %block, align 8
  call void %free(ptr %memory)
  br label %look
end:
  ret void
}

define void @anydim_hold(ptr %block) nounwind {
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %some
some:
  %references.at = getelementptr i64, ptr %block, i64 #REFERENCES
  %references = load i64, ptr %references.at, align 8
  %more = add i64 %references, 1
  store i64 %more, ptr %references.at, align 8
  br label %end
end:
  ret void
}

define void @anydim_drop(ptr %call, ptr %block) nounwind {
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %some
some:
  %references.at = getelementptr i64, ptr %block, i64 #REFERENCES
  %references = load i64, ptr %references.at, align 8
  %less = sub i64 %references, 1
  store i64 %less, ptr %references.at, align 8
  %unused = icmp eq i64 %less, 0
  br i1 %unused, label %out, label %end
out:
  call void @shelve(ptr %call, ptr %block)
  br label %end
end:
  ret void
}

define ptr @anydim_arena(ptr %call, i64 %bytes) nounwind {
entry:
  %arena.at = getelementptr i64, ptr %call, i64 #ARENA_BLOCK
  %block = load ptr, ptr %arena.at, align 8
  %none = icmp eq ptr %block, null
  br i1 %none, label %make, label %look
look:
  %bytes.at = getelementptr i64, ptr %block, i64 #BYTES
  %has = load i64, ptr %bytes.at, align 8
  %enough = icmp uge i64 %has, %bytes
  br i1 %enough, label %ready, label %larger
larger:
  store ptr null, ptr %arena.at, align 8
  call void @anydim_drop(ptr %call, ptr %block)
  br label %make
make:
  %fresh = call ptr @anydim_allocate(ptr %call, i64 %bytes)
  store ptr %fresh, ptr %arena.at, align 8
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %fail, label %ready
ready:
  %arena = phi ptr [ %block, %look ], [ %fresh, %make ]
  %memory = getelementptr i8, ptr %arena, i64 #HEAD
  ret ptr %memory
fail:
  ret ptr null
}

define i1 @anydim_grow(ptr %call, ptr %data.at, ptr %owner.at, ptr %room.at, i64 %used,
                       i64 %bytes) nounwind {
entry:
  %room = load i64, ptr %room.at, align 8
  %fits = icmp ult i64 %used, %room
  br i1 %fits, label %ready, label %more
more:
  %double = mul i64 %room, 2
  %wider = add i64 %double, 1
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %wider, i64 %bytes)
  %over = extractvalue { i64, i1 } %product, 1
  br i1 %over, label %fail, label %make
make:
  %all = extractvalue { i64, i1 } %product, 0
  %block = call ptr @anydim_allocate(ptr %call, i64 %all)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %fail, label %move
move:
  %memory = getelementptr i8, ptr %block, i64 #HEAD
  %old = load ptr, ptr %data.at, align 8
  %before = load ptr, ptr %owner.at, align 8
  %held = mul i64 %used, %bytes
  %copy.at = getelementptr i64, ptr %call, i64 #COPY
  %copy = load ptr, ptr %copy.at, align 8
  %same = call ptr %copy(ptr %memory, ptr %old, i64 %held)
  call void @anydim_drop(ptr %call, ptr %before)
  store ptr %memory, ptr %data.at, align 8
  store ptr %block, ptr %owner.at, align 8
  store i64 %wider, ptr %room.at, align 8
  br label %ready
ready:
  ret i1 true
fail:
  ret i1 false
}

define ptr @anydim_leave(ptr %call, ptr %block) nounwind {
  call void @delist(ptr %call, ptr %block)
  %memory = load ptr, ptr %block, align 8
  ret ptr %memory
}

define i64 @anydim_clear(ptr %call) nounwind {
entry:
  %arena.at = getelementptr i64, ptr %call, i64 #ARENA_BLOCK
  %arena = load ptr, ptr %arena.at, align 8
  store ptr null, ptr %arena.at, align 8
  call void @anydim_drop(ptr %call, ptr %arena)
  %live.at = getelementptr i64, ptr %call, i64 #LIVE
  br label %look
look:
  %cleared = phi i64 [ 0, %entry ], [ %more, %one ]
  %block = load ptr, ptr %live.at, align 8
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %one
one:
  call void @shelve(ptr %call, ptr %block)
  %more = add i64 %cleared, 1
  br label %look
end:
  ret i64 %cleared
}

declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
"""
