/* kernel rows_1eba00a69b39 */

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

static void main_(f32 *t0, f32 *restrict t1, f32 *t2, i64 p0, i64 start, i64 stop, u8 *restrict scratch) {
  if (start < stop) {
    _Alignas(64) f32 panel0[64];
    _Alignas(64) f32 panel1[64];
    for (i64 r1 = start; r1 < stop; r1 += 8) {
      const i64 v19 = stop - r1;
      const i64 v20 = r1 * 7;
      const i64 v21 = v20 + ((1 < v19) ? 7 : 0);
      const i64 v22 = v21 + ((2 < v19) ? 7 : 0);
      const i64 v23 = v22 + ((3 < v19) ? 7 : 0);
      const i64 v24 = v23 + ((4 < v19) ? 7 : 0);
      const i64 v25 = v24 + ((5 < v19) ? 7 : 0);
      const i64 v26 = v25 + ((6 < v19) ? 7 : 0);
      const i64 v27 = v26 + ((7 < v19) ? 7 : 0);
      for (i64 c0 = 0; c0 < 7; c0 += 4) {
        const i64 v28 = 7 - c0;
        const i32x4 v29 = iota_i32x4() < splat_i32x4((i32)min_i64(v28, 4));
        const i64 v30 = v20 + c0;
        const f32x4 v31 = load_if_f32x4(t0 + v30, v29);
        const i64 v32 = v21 + c0;
        const f32x4 v33 = load_if_f32x4(t0 + v32, v29);
        const i64 v34 = v22 + c0;
        const f32x4 v35 = load_if_f32x4(t0 + v34, v29);
        const i64 v36 = v23 + c0;
        const f32x4 v37 = load_if_f32x4(t0 + v36, v29);
        const i64 v38 = v24 + c0;
        const f32x4 v39 = load_if_f32x4(t0 + v38, v29);
        const i64 v40 = v25 + c0;
        const f32x4 v41 = load_if_f32x4(t0 + v40, v29);
        const i64 v42 = v26 + c0;
        const f32x4 v43 = load_if_f32x4(t0 + v42, v29);
        const i64 v44 = v27 + c0;
        const f32x4 v45 = load_if_f32x4(t0 + v44, v29);
        const f32x8 square0_4_0 = __builtin_shufflevector(v31, v39, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_4_1 = __builtin_shufflevector(v33, v41, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_4_2 = __builtin_shufflevector(v35, v43, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_4_3 = __builtin_shufflevector(v37, v45, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_2_0 = __builtin_shufflevector(square0_4_0, square0_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_1 = __builtin_shufflevector(square0_4_1, square0_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_2 = __builtin_shufflevector(square0_4_0, square0_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_2_3 = __builtin_shufflevector(square0_4_1, square0_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_1_0 = __builtin_shufflevector(square0_2_0, square0_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_1 = __builtin_shufflevector(square0_2_0, square0_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square0_1_2 = __builtin_shufflevector(square0_2_2, square0_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_3 = __builtin_shufflevector(square0_2_2, square0_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v46 = c0 * 8;
        store_f32x8(panel0 + v46, square0_1_0);
        const i64 v47 = (c0 + 1) * 8;
        store_f32x8(panel0 + v47, square0_1_1);
        const i64 v48 = (c0 + 2) * 8;
        store_f32x8(panel0 + v48, square0_1_2);
        const i64 v49 = (c0 + 3) * 8;
        store_f32x8(panel0 + v49, square0_1_3);
      }
      const i32x8 v50 = iota_i32x8() < splat_i32x8((i32)min_i64(v19, 8));
      f32x8 a1 = splat_f32x8(0.0f);
      for (i64 i0 = 0; i0 < 7; i0++) {
        const i64 v51 = i0 * 8;
        const f32x8 v52 = load_f32x8(panel0 + v51);
        a1 = a1 + v52;
      }
      const f32x8 v53 = a1;
      const f32x8 v54 = v53 + splat_f32x8(10.0f);
      const f32x8 v55 = splat_f32x8(1.0f) / v54;
      const u32x8 v56 = (u32x8)v54;
      const u32x8 v57 = v56 - splat_u32x8(796917760u);
      const i32x8 v58 = v57 > splat_u32x8(536870912u);
      for (i64 i2 = 0; i2 < 2; i2++) {
        for (i64 i1 = i2; i1 < 7; i1 += 2) {
          const i64 v59 = i1 * 8;
          const f32x8 v60 = load_f32x8(panel0 + v59);
          const u32x8 v61 = (u32x8)v60 - splat_u32x8(536870912u) & splat_u32x8(1073741824u);
          const _Bool v62 = reduce_or_i32x8(((v61 != splat_u32x8(0u)) & (v50)) | (v58)) != 0;
          f32x8 quotient1 = v60;
          if (v62) {
            const u32x8 quotient1_b0 = (u32x8)v60 & splat_u32x8(2147483647u);
            const _Bool quotient1_b1 = reduce_or_i32x8((((quotient1_b0 - splat_u32x8(1u) < splat_u32x8(310378495u)) | (quotient1_b0 >= splat_u32x8(1820327936u))) & (v50)) | (v58)) != 0;
            if (quotient1_b1) {
              quotient1 = v60 / v54;
            } else {
              const f32x8 quotient1_c0 = v60 * v55;
              quotient1 = fma_f32x8(-fma_f32x8(quotient1_c0, v54, -v60), v55, quotient1_c0);
            }
          } else {
            const f32x8 quotient1_a0 = v60 * v55;
            quotient1 = fma_f32x8(-fma_f32x8(quotient1_a0, v54, -v60), v55, quotient1_a0);
          }
          const f32x8 v63 = quotient1;
          store_if_f32x8(panel1 + v59, v50, v63);
        }
      }
      store_if_f32x8(t1 + r1, v50, v53);
      const i64 v64 = r1 * 7;
      const i64 v65 = v64 + ((1 < v19) ? 7 : 0);
      const i64 v66 = v65 + ((2 < v19) ? 7 : 0);
      const i64 v67 = v66 + ((3 < v19) ? 7 : 0);
      const i64 v68 = v67 + ((4 < v19) ? 7 : 0);
      const i64 v69 = v68 + ((5 < v19) ? 7 : 0);
      const i64 v70 = v69 + ((6 < v19) ? 7 : 0);
      const i64 v71 = v70 + ((7 < v19) ? 7 : 0);
      const _Bool v72 = 8 <= v19;
      for (i64 c1 = 0; c1 < 7; c1 += 4) {
        const i64 v73 = 7 - c1;
        const i32x4 v74 = iota_i32x4() < splat_i32x4((i32)min_i64(v73, 4));
        const i64 v75 = c1 * 8;
        const i64 v76 = (c1 + 1) * 8;
        const i64 v77 = (c1 + 2) * 8;
        const i64 v78 = (c1 + 3) * 8;
        const f32x8 square1_4_0 = load_f32x8(panel1 + v75);
        const f32x8 square1_4_1 = load_f32x8(panel1 + v76);
        const f32x8 square1_4_2 = load_f32x8(panel1 + v77);
        const f32x8 square1_4_3 = load_f32x8(panel1 + v78);
        const f32x8 square1_2_0 = __builtin_shufflevector(square1_4_0, square1_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_1 = __builtin_shufflevector(square1_4_1, square1_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_2 = __builtin_shufflevector(square1_4_0, square1_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_2_3 = __builtin_shufflevector(square1_4_1, square1_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_1_0 = __builtin_shufflevector(square1_2_0, square1_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_1 = __builtin_shufflevector(square1_2_0, square1_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square1_1_2 = __builtin_shufflevector(square1_2_2, square1_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_3 = __builtin_shufflevector(square1_2_2, square1_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v79 = v64 + c1;
        const i64 v80 = v65 + c1;
        const i64 v81 = v66 + c1;
        const i64 v82 = v67 + c1;
        const i64 v83 = v68 + c1;
        const i64 v84 = v69 + c1;
        const i64 v85 = v70 + c1;
        const i64 v86 = v71 + c1;
        if (v72) {
          store_if_f32x4(t2 + v79, v74, __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          store_if_f32x4(t2 + v80, v74, __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          store_if_f32x4(t2 + v81, v74, __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          store_if_f32x4(t2 + v82, v74, __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          store_if_f32x4(t2 + v83, v74, __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          store_if_f32x4(t2 + v84, v74, __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          store_if_f32x4(t2 + v85, v74, __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          store_if_f32x4(t2 + v86, v74, __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
        } else {
          if (0 < v19) {
            store_if_f32x4(t2 + v79, v74, __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          }
          if (1 < v19) {
            store_if_f32x4(t2 + v80, v74, __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          }
          if (2 < v19) {
            store_if_f32x4(t2 + v81, v74, __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          }
          if (3 < v19) {
            store_if_f32x4(t2 + v82, v74, __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          }
          if (4 < v19) {
            store_if_f32x4(t2 + v83, v74, __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          }
          if (5 < v19) {
            store_if_f32x4(t2 + v84, v74, __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          }
          if (6 < v19) {
            store_if_f32x4(t2 + v85, v74, __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          }
          if (7 < v19) {
            store_if_f32x4(t2 + v86, v74, __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
          }
        }
      }
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_1eba00a69b39(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_1eba00a69b39(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, arguments[3].number, start, stop, scratch);
}
