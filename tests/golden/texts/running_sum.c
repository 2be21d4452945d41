/* kernel loop_nest_385da02725b1 */

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_shufflevector)
#error anydim needs a compiler with __builtin_shufflevector: GCC 12, clang or zig cc
#endif

typedef float f32 __attribute__((may_alias));
typedef __INT64_TYPE__ i64 __attribute__((may_alias));
typedef __UINT8_TYPE__ u8 __attribute__((may_alias));

static void main_(f32 *restrict t0, f32 *restrict t1, i64 p0, i64 start, i64 stop, u8 *restrict scratch) {
  if (start < stop) {
    const _Bool v0 = -1 >= 0;
    const _Bool v1 = -1 < p0;
    const _Bool v2 = v0 && v1;
    const f32 v3 = v2 ? t1[-1] : 0;
    const f32 v4 = v2 ? v3 : 0.0f;
    f32 h0 = v4;
    for (i64 r0 = 0; r0 < p0; r0++) {
      const f32 v5 = t0[r0];
      const f32 v6 = h0;
      const f32 v7 = v5 + v6;
      t1[r0] = v7;
      h0 = v7;
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void loop_nest_385da02725b1(const slot *arguments, i64 start, i64 stop, void *scratch);
void loop_nest_385da02725b1(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].number, start, stop, scratch);
}
