; What WebAssembly offers as instructions and JavaScript as functions, as the host code calls it:
; int64 addresses, by their place in the table of functions.

declare i32 @take(i32) #1
declare void @give(i32) #2
declare void @llvm.memmove.p0.p0.i32(ptr, ptr, i32, i1)
declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)

define i64 @anydim_take(i64 %bytes) #0 {
  %large = icmp ugt i64 %bytes, 4294967295
  br i1 %large, label %none, label %some
some:
  %less = trunc i64 %bytes to i32
  %address = call i32 @take(i32 %less)
  %word = zext i32 %address to i64
  ret i64 %word
none:
  ret i64 0
}

define void @anydim_give(i64 %word) #0 {
  %address = trunc i64 %word to i32
  call void @give(i32 %address)
  ret void
}

define void @anydim_copy(i64 %target, i64 %source, i64 %bytes) #0 {
  %to = inttoptr i64 %target to ptr
  %from = inttoptr i64 %source to ptr
  %less = trunc i64 %bytes to i32
  call void @llvm.memmove.p0.p0.i32(ptr %to, ptr %from, i32 %less, i1 false)
  ret void
}

define void @anydim_fill(i64 %target, i64 %value, i64 %bytes) #0 {
  %to = inttoptr i64 %target to ptr
  %byte = trunc i64 %value to i8
  %less = trunc i64 %bytes to i32
  call void @llvm.memset.p0.i32(ptr %to, i8 %byte, i32 %less, i1 false)
  ret void
}

; The sum of the words from `start` to `end`, and the sum of its running values, at `sums`.
define void @anydim_sum(ptr %start, ptr %end, ptr %sums) #0 {
entry:
  %any = icmp ult ptr %start, %end
  br i1 %any, label %words, label %done
words:
  %at = phi ptr [ %start, %entry ], [ %next, %words ]
  %first = phi i64 [ 0, %entry ], [ %more, %words ]
  %second = phi i64 [ 0, %entry ], [ %total, %words ]
  %word = load i64, ptr %at, align 8
  %more = add i64 %first, %word
  %total = add i64 %second, %more
  %next = getelementptr i64, ptr %at, i32 1
  %again = icmp ult ptr %next, %end
  br i1 %again, label %words, label %done
done:
  %sum = phi i64 [ 0, %entry ], [ %more, %words ]
  %running = phi i64 [ 0, %entry ], [ %total, %words ]
  %behind = getelementptr i64, ptr %sums, i32 1
  store i64 %sum, ptr %sums, align 8
  store i64 %running, ptr %behind, align 8
  ret void
}

attributes #0 = { nounwind }
attributes #1 = { "wasm-import-module"="anydim" "wasm-import-name"="take" }
attributes #2 = { "wasm-import-module"="anydim" "wasm-import-name"="give" }
