/* kernel rows_45303c74d46e */

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_shufflevector)
#error anydim needs a compiler with __builtin_shufflevector: GCC 12, clang or zig cc
#endif

typedef __INT64_TYPE__ i64x8 __attribute__((vector_size(64)));
typedef __INT64_TYPE__ i64 __attribute__((may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32 __attribute__((may_alias));
typedef __INT32_TYPE__ i32x8 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x2 __attribute__((vector_size(8)));
typedef __UINT32_TYPE__ u32 __attribute__((may_alias));
typedef __UINT32_TYPE__ u32x8 __attribute__((vector_size(32)));
typedef __INT32_TYPE__ i32x4 __attribute__((vector_size(16)));
typedef __INT32_TYPE__ i32x2 __attribute__((vector_size(8)));
typedef __INT32_TYPE__ i32 __attribute__((may_alias));
typedef __UINT8_TYPE__ u8 __attribute__((may_alias));

static inline __attribute__((always_inline)) i64x8 iota_i64x8(void) {
  return (i64x8){0, 1, 2, 3, 4, 5, 6, 7};
}
static inline __attribute__((always_inline)) i64x8 splat_i64x8(i64 a) {
  return (i64x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) f32x8 splat_f32x8(f32 a) {
  return (f32x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) f32x8 load_if_f32x8(const f32 *p, i32x8 m) {
#if __has_builtin(__builtin_ia32_maskloadps256)
  return (f32x8)__builtin_ia32_maskloadps256((void *)p, (__attribute__((vector_size(32))) int)m);
#else
  return (f32x8){m[0] ? p[0] : 0, m[1] ? p[1] : 0, m[2] ? p[2] : 0, m[3] ? p[3] : 0, m[4] ? p[4] : 0, m[5] ? p[5] : 0, m[6] ? p[6] : 0, m[7] ? p[7] : 0};
#endif
}
static inline __attribute__((always_inline)) f32x8 select_f32x8(i32x8 m, f32x8 a, f32x8 b) {
  return (f32x8)((m & (i32x8)a) | (~m & (i32x8)b));
}
static inline __attribute__((always_inline)) f32 reduce_add_f32x8(f32x8 a) {
  const f32x4 a4 = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
  const f32x2 a2 = __builtin_shufflevector(a4, a4, 0, 1) + __builtin_shufflevector(a4, a4, 2, 3);
  const f32 a1 = a2[0] + a2[1];
  return a1;
}
static inline __attribute__((always_inline)) u32 bits_u32_f32(f32 a) {
  u32 b;
  __builtin_memcpy(&b, &a, sizeof b);
  return b;
}
static inline __attribute__((always_inline)) u32x8 splat_u32x8(u32 a) {
  return (u32x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) i32 reduce_or_i32x8(i32x8 a) {
  const i32x4 a4 = __builtin_shufflevector(a, a, 0, 1, 2, 3) | __builtin_shufflevector(a, a, 4, 5, 6, 7);
  const i32x2 a2 = __builtin_shufflevector(a4, a4, 0, 1) | __builtin_shufflevector(a4, a4, 2, 3);
  const i32 a1 = a2[0] | a2[1];
  return a1;
}
static inline __attribute__((always_inline)) f32 fma_f32(f32 a, f32 b, f32 c) {
  return __builtin_fmaf(a, b, c);
}
static inline __attribute__((always_inline)) f32x8 fma_f32x8(f32x8 a, f32x8 b, f32x8 c) {
#if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
#elif __has_builtin(__builtin_ia32_vfmaddps256)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  return (f32x8){fma_f32(a[0], b[0], c[0]), fma_f32(a[1], b[1], c[1]), fma_f32(a[2], b[2], c[2]), fma_f32(a[3], b[3], c[3]), fma_f32(a[4], b[4], c[4]), fma_f32(a[5], b[5], c[5]), fma_f32(a[6], b[6], c[6]), fma_f32(a[7], b[7], c[7])};
#endif
}
static inline __attribute__((always_inline)) void store_if_f32x8(f32 *p, i32x8 m, f32x8 a) {
#if __has_builtin(__builtin_ia32_maskstoreps256)
  __builtin_ia32_maskstoreps256((void *)p, (__attribute__((vector_size(32))) int)m, (__attribute__((vector_size(32))) float)a);
#else
  if (m[0]) p[0] = a[0];
  if (m[1]) p[1] = a[1];
  if (m[2]) p[2] = a[2];
  if (m[3]) p[3] = a[3];
  if (m[4]) p[4] = a[4];
  if (m[5]) p[5] = a[5];
  if (m[6]) p[6] = a[6];
  if (m[7]) p[7] = a[7];
#endif
}

static void main_(f32 *t0, f32 *restrict t1, f32 *t2, i64 p0, i64 start, i64 stop, u8 *restrict scratch) {
  if (start < stop) {
    const i64x8 v0 = iota_i64x8() < splat_i64x8(7);
    const _Bool v1 = 7 < 2048;
    for (i64 r0 = start; r0 < stop; r0++) {
      const i64 v2 = r0 * 7;
      f32x8 a0 = splat_f32x8(0.0f);
      const f32x8 v3 = load_if_f32x8(t0 + v2, __builtin_convertvector(v0, i32x8));
      const f32x8 v4 = select_f32x8(__builtin_convertvector(v0, i32x8), v3, splat_f32x8(0.0f));
      a0 = a0 + v4;
      const f32x8 v5 = a0;
      const f32 v6 = reduce_add_f32x8(v5);
      const f32 v7 = v6 + 10.0f;
      const f32x8 v8 = splat_f32x8(v7);
      const f32 v9 = 1.0f / v7;
      const f32x8 v10 = splat_f32x8(v9);
      const u32 v11 = bits_u32_f32(v7);
      const u32 v12 = v11 - 796917760u;
      const _Bool v13 = v12 > 536870912u;
      const f32x8 v14 = load_if_f32x8(t0 + v2, __builtin_convertvector(v0, i32x8));
      const u32x8 v15 = (u32x8)v14;
      const u32x8 v16 = v15 - splat_u32x8(536870912u);
      const u32x8 v17 = v16 & splat_u32x8(1073741824u);
      const i32x8 v18 = v17 != splat_u32x8(0u);
      const i32x8 v19 = (v18) & (__builtin_convertvector(v0, i32x8));
      const _Bool v20 = reduce_or_i32x8(v19) != 0;
      const _Bool v21 = v20 || v13;
      f32x8 quotient0 = v14;
      if (v21) {
        const u32x8 quotient0_b0 = (u32x8)v14;
        const u32x8 quotient0_b1 = quotient0_b0 & splat_u32x8(2147483647u);
        const i32x8 quotient0_b2 = quotient0_b1 >= splat_u32x8(1820327936u);
        const u32x8 quotient0_b3 = quotient0_b1 - splat_u32x8(1u);
        const i32x8 quotient0_b4 = quotient0_b3 < splat_u32x8(310378495u);
        const i32x8 quotient0_b5 = (quotient0_b4) | (quotient0_b2);
        const i32x8 quotient0_b6 = (quotient0_b5) & (__builtin_convertvector(v0, i32x8));
        const _Bool quotient0_b7 = reduce_or_i32x8(quotient0_b6) != 0;
        const _Bool quotient0_b8 = quotient0_b7 || v13;
        if (quotient0_b8) {
          quotient0 = v14 / v8;
        } else {
          const f32x8 quotient0_c0 = v14 * v10;
          const f32x8 quotient0_c1 = -v14;
          const f32x8 quotient0_c2 = fma_f32x8(quotient0_c0, v8, quotient0_c1);
          const f32x8 quotient0_c3 = -quotient0_c2;
          quotient0 = fma_f32x8(quotient0_c3, v10, quotient0_c0);
        }
      } else {
        const f32x8 quotient0_a0 = v14 * v10;
        const f32x8 quotient0_a1 = -v14;
        const f32x8 quotient0_a2 = fma_f32x8(quotient0_a0, v8, quotient0_a1);
        const f32x8 quotient0_a3 = -quotient0_a2;
        quotient0 = fma_f32x8(quotient0_a3, v10, quotient0_a0);
      }
      const f32x8 v22 = quotient0;
      store_if_f32x8(t2 + v2, __builtin_convertvector(v0, i32x8), v22);
      t1[r0] = v6;
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_45303c74d46e(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_45303c74d46e(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, arguments[3].number, start, stop, scratch);
}
