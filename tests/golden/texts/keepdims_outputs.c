/* kernel rows_b5900c6c4cd5 */

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_shufflevector)
#error anydim needs a compiler with __builtin_shufflevector: GCC 12, clang or zig cc
#endif

typedef float f32 __attribute__((may_alias));
typedef __INT64_TYPE__ i64 __attribute__((may_alias));
typedef __INT32_TYPE__ i32x4 __attribute__((vector_size(16)));
typedef __INT32_TYPE__ i32 __attribute__((may_alias));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef __INT32_TYPE__ i32x8 __attribute__((vector_size(32)));
typedef __UINT32_TYPE__ u32x8 __attribute__((vector_size(32)));
typedef __UINT32_TYPE__ u32 __attribute__((may_alias));
typedef __INT32_TYPE__ i32x2 __attribute__((vector_size(8)));
typedef __UINT8_TYPE__ u8 __attribute__((may_alias));

static inline __attribute__((always_inline)) i32x4 iota_i32x4(void) {
  return (i32x4){0, 1, 2, 3};
}
static inline __attribute__((always_inline)) i64 min_i64(i64 a, i64 b) {
  return a < b ? a : b;
}
static inline __attribute__((always_inline)) i32x4 splat_i32x4(i32 a) {
  return (i32x4){a, a, a, a};
}
static inline __attribute__((always_inline)) f32x4 load_if_f32x4(const f32 *p, i32x4 m) {
#if __has_builtin(__builtin_ia32_maskloadps)
  return (f32x4)__builtin_ia32_maskloadps((void *)p, (__attribute__((vector_size(16))) int)m);
#else
  return (f32x4){m[0] ? p[0] : 0, m[1] ? p[1] : 0, m[2] ? p[2] : 0, m[3] ? p[3] : 0};
#endif
}
static inline __attribute__((always_inline)) void store_f32x8(f32 *p, f32x8 a) {
  *(f32x8_at *)p = a;
}
static inline __attribute__((always_inline)) i32x8 iota_i32x8(void) {
  return (i32x8){0, 1, 2, 3, 4, 5, 6, 7};
}
static inline __attribute__((always_inline)) i32x8 splat_i32x8(i32 a) {
  return (i32x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) f32x8 splat_f32x8(f32 a) {
  return (f32x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) f32x8 load_f32x8(const f32 *p) {
  return *(const f32x8_at *)p;
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
static inline __attribute__((always_inline)) void store_if_f32x4(f32 *p, i32x4 m, f32x4 a) {
#if __has_builtin(__builtin_ia32_maskstoreps)
  __builtin_ia32_maskstoreps((void *)p, (__attribute__((vector_size(16))) int)m, (__attribute__((vector_size(16))) float)a);
#else
  if (m[0]) p[0] = a[0];
  if (m[1]) p[1] = a[1];
  if (m[2]) p[2] = a[2];
  if (m[3]) p[3] = a[3];
#endif
}

static void main_(f32 *t0, f32 *restrict t1, f32 *t2, i64 start, i64 stop, u8 *restrict scratch) {
  if (start < stop) {
    _Alignas(64) f32 panel0[64];
    _Alignas(64) f32 panel1[64];
    for (i64 r0 = start; r0 < stop; r0 += 8) {
      const i64 v0 = stop - r0;
      const i64 v1 = r0 * 7;
      const i64 v2 = v1 + ((1 < v0) ? 7 : 0);
      const i64 v3 = v2 + ((2 < v0) ? 7 : 0);
      const i64 v4 = v3 + ((3 < v0) ? 7 : 0);
      const i64 v5 = v4 + ((4 < v0) ? 7 : 0);
      const i64 v6 = v5 + ((5 < v0) ? 7 : 0);
      const i64 v7 = v6 + ((6 < v0) ? 7 : 0);
      const i64 v8 = v7 + ((7 < v0) ? 7 : 0);
      for (i64 c0 = 0; c0 < 7; c0 += 4) {
        const i64 v9 = 7 - c0;
        const i32x4 v10 = iota_i32x4() < splat_i32x4((i32)min_i64(v9, 4));
        const i64 v11 = v1 + c0;
        const f32x4 v12 = load_if_f32x4(t0 + v11, v10);
        const i64 v13 = v2 + c0;
        const f32x4 v14 = load_if_f32x4(t0 + v13, v10);
        const i64 v15 = v3 + c0;
        const f32x4 v16 = load_if_f32x4(t0 + v15, v10);
        const i64 v17 = v4 + c0;
        const f32x4 v18 = load_if_f32x4(t0 + v17, v10);
        const i64 v19 = v5 + c0;
        const f32x4 v20 = load_if_f32x4(t0 + v19, v10);
        const i64 v21 = v6 + c0;
        const f32x4 v22 = load_if_f32x4(t0 + v21, v10);
        const i64 v23 = v7 + c0;
        const f32x4 v24 = load_if_f32x4(t0 + v23, v10);
        const i64 v25 = v8 + c0;
        const f32x4 v26 = load_if_f32x4(t0 + v25, v10);
        const f32x8 v27 = __builtin_shufflevector(v12, v20, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v28 = __builtin_shufflevector(v14, v22, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v29 = __builtin_shufflevector(v16, v24, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v30 = __builtin_shufflevector(v18, v26, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v31 = __builtin_shufflevector(v27, v29, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v32 = __builtin_shufflevector(v28, v30, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v33 = __builtin_shufflevector(v27, v29, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v34 = __builtin_shufflevector(v28, v30, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v35 = __builtin_shufflevector(v31, v32, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v36 = __builtin_shufflevector(v31, v32, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 v37 = __builtin_shufflevector(v33, v34, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v38 = __builtin_shufflevector(v33, v34, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v39 = c0 * 8;
        store_f32x8(panel0 + v39, v35);
        const i64 v40 = (c0 + 1) * 8;
        store_f32x8(panel0 + v40, v36);
        const i64 v41 = (c0 + 2) * 8;
        store_f32x8(panel0 + v41, v37);
        const i64 v42 = (c0 + 3) * 8;
        store_f32x8(panel0 + v42, v38);
      }
      const i32x8 v43 = iota_i32x8() < splat_i32x8((i32)min_i64(v0, 8));
      f32x8 a0 = splat_f32x8(0.0f);
      for (i64 i0 = 0; i0 < 7; i0++) {
        const i64 v44 = i0 * 8;
        const f32x8 v45 = load_f32x8(panel0 + v44);
        a0 = a0 + v45;
      }
      const f32x8 v46 = a0;
      const f32x8 v47 = v46 + splat_f32x8(10.0f);
      const f32x8 v48 = splat_f32x8(1.0f) / v47;
      const u32x8 v49 = (u32x8)v47;
      const u32x8 v50 = v49 - splat_u32x8(796917760u);
      const i32x8 v51 = v50 > splat_u32x8(536870912u);
      for (i64 i2 = 0; i2 < 2; i2++) {
        for (i64 i1 = i2; i1 < 7; i1 += 2) {
          const i64 v52 = i1 * 8;
          const f32x8 v53 = load_f32x8(panel0 + v52);
          const u32x8 v54 = (u32x8)v53 - splat_u32x8(536870912u) & splat_u32x8(1073741824u);
          const _Bool v55 = reduce_or_i32x8(((v54 != splat_u32x8(0u)) & (v43)) | (v51)) != 0;
          f32x8 quotient0 = v53;
          if (v55) {
            const u32x8 quotient0_b0 = (u32x8)v53 & splat_u32x8(2147483647u);
            const _Bool quotient0_b1 = reduce_or_i32x8((((quotient0_b0 - splat_u32x8(1u) < splat_u32x8(310378495u)) | (quotient0_b0 >= splat_u32x8(1820327936u))) & (v43)) | (v51)) != 0;
            if (quotient0_b1) {
              quotient0 = v53 / v47;
            } else {
              const f32x8 quotient0_c0 = v53 * v48;
              quotient0 = fma_f32x8(-fma_f32x8(quotient0_c0, v47, -v53), v48, quotient0_c0);
            }
          } else {
            const f32x8 quotient0_a0 = v53 * v48;
            quotient0 = fma_f32x8(-fma_f32x8(quotient0_a0, v47, -v53), v48, quotient0_a0);
          }
          const f32x8 v56 = quotient0;
          store_if_f32x8(panel1 + v52, v43, v56);
        }
      }
      store_if_f32x8(t1 + r0, v43, v46);
      const i64 v57 = r0 * 7;
      const i64 v58 = v57 + ((1 < v0) ? 7 : 0);
      const i64 v59 = v58 + ((2 < v0) ? 7 : 0);
      const i64 v60 = v59 + ((3 < v0) ? 7 : 0);
      const i64 v61 = v60 + ((4 < v0) ? 7 : 0);
      const i64 v62 = v61 + ((5 < v0) ? 7 : 0);
      const i64 v63 = v62 + ((6 < v0) ? 7 : 0);
      const i64 v64 = v63 + ((7 < v0) ? 7 : 0);
      const _Bool v65 = 8 <= v0;
      for (i64 c1 = 0; c1 < 7; c1 += 4) {
        const i64 v66 = 7 - c1;
        const i32x4 v67 = iota_i32x4() < splat_i32x4((i32)min_i64(v66, 4));
        const i64 v68 = c1 * 8;
        const i64 v69 = (c1 + 1) * 8;
        const i64 v70 = (c1 + 2) * 8;
        const i64 v71 = (c1 + 3) * 8;
        const f32x8 v72 = load_f32x8(panel1 + v68);
        const f32x8 v73 = load_f32x8(panel1 + v69);
        const f32x8 v74 = load_f32x8(panel1 + v70);
        const f32x8 v75 = load_f32x8(panel1 + v71);
        const f32x8 v76 = __builtin_shufflevector(v72, v74, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v77 = __builtin_shufflevector(v73, v75, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v78 = __builtin_shufflevector(v72, v74, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v79 = __builtin_shufflevector(v73, v75, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v80 = __builtin_shufflevector(v76, v77, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v81 = __builtin_shufflevector(v76, v77, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 v82 = __builtin_shufflevector(v78, v79, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v83 = __builtin_shufflevector(v78, v79, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v84 = v57 + c1;
        const i64 v85 = v58 + c1;
        const i64 v86 = v59 + c1;
        const i64 v87 = v60 + c1;
        const i64 v88 = v61 + c1;
        const i64 v89 = v62 + c1;
        const i64 v90 = v63 + c1;
        const i64 v91 = v64 + c1;
        if (v65) {
          store_if_f32x4(t2 + v84, v67, __builtin_shufflevector(v80, v80, 0, 1, 2, 3));
          store_if_f32x4(t2 + v85, v67, __builtin_shufflevector(v81, v81, 0, 1, 2, 3));
          store_if_f32x4(t2 + v86, v67, __builtin_shufflevector(v82, v82, 0, 1, 2, 3));
          store_if_f32x4(t2 + v87, v67, __builtin_shufflevector(v83, v83, 0, 1, 2, 3));
          store_if_f32x4(t2 + v88, v67, __builtin_shufflevector(v80, v80, 4, 5, 6, 7));
          store_if_f32x4(t2 + v89, v67, __builtin_shufflevector(v81, v81, 4, 5, 6, 7));
          store_if_f32x4(t2 + v90, v67, __builtin_shufflevector(v82, v82, 4, 5, 6, 7));
          store_if_f32x4(t2 + v91, v67, __builtin_shufflevector(v83, v83, 4, 5, 6, 7));
        } else {
          if (0 < v0) {
            store_if_f32x4(t2 + v84, v67, __builtin_shufflevector(v80, v80, 0, 1, 2, 3));
          }
          if (1 < v0) {
            store_if_f32x4(t2 + v85, v67, __builtin_shufflevector(v81, v81, 0, 1, 2, 3));
          }
          if (2 < v0) {
            store_if_f32x4(t2 + v86, v67, __builtin_shufflevector(v82, v82, 0, 1, 2, 3));
          }
          if (3 < v0) {
            store_if_f32x4(t2 + v87, v67, __builtin_shufflevector(v83, v83, 0, 1, 2, 3));
          }
          if (4 < v0) {
            store_if_f32x4(t2 + v88, v67, __builtin_shufflevector(v80, v80, 4, 5, 6, 7));
          }
          if (5 < v0) {
            store_if_f32x4(t2 + v89, v67, __builtin_shufflevector(v81, v81, 4, 5, 6, 7));
          }
          if (6 < v0) {
            store_if_f32x4(t2 + v90, v67, __builtin_shufflevector(v82, v82, 4, 5, 6, 7));
          }
          if (7 < v0) {
            store_if_f32x4(t2 + v91, v67, __builtin_shufflevector(v83, v83, 4, 5, 6, 7));
          }
        }
      }
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_b5900c6c4cd5(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_b5900c6c4cd5(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, start, stop, scratch);
}
