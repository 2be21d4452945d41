/* kernel rows_ad5935b44449 */

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
        const f32x8 v46 = __builtin_shufflevector(v31, v39, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v47 = __builtin_shufflevector(v33, v41, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v48 = __builtin_shufflevector(v35, v43, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v49 = __builtin_shufflevector(v37, v45, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v50 = __builtin_shufflevector(v46, v48, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v51 = __builtin_shufflevector(v47, v49, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v52 = __builtin_shufflevector(v46, v48, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v53 = __builtin_shufflevector(v47, v49, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v54 = __builtin_shufflevector(v50, v51, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v55 = __builtin_shufflevector(v50, v51, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 v56 = __builtin_shufflevector(v52, v53, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v57 = __builtin_shufflevector(v52, v53, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v58 = c0 * 8;
        store_f32x8(panel0 + v58, v54);
        const i64 v59 = (c0 + 1) * 8;
        store_f32x8(panel0 + v59, v55);
        const i64 v60 = (c0 + 2) * 8;
        store_f32x8(panel0 + v60, v56);
        const i64 v61 = (c0 + 3) * 8;
        store_f32x8(panel0 + v61, v57);
      }
      const i32x8 v62 = iota_i32x8() < splat_i32x8((i32)min_i64(v19, 8));
      f32x8 a1 = splat_f32x8(0.0f);
      for (i64 i0 = 0; i0 < 7; i0++) {
        const i64 v63 = i0 * 8;
        const f32x8 v64 = load_f32x8(panel0 + v63);
        a1 = a1 + v64;
      }
      const f32x8 v65 = a1;
      const f32x8 v66 = v65 + splat_f32x8(10.0f);
      const f32x8 v67 = splat_f32x8(1.0f) / v66;
      const u32x8 v68 = (u32x8)v66;
      const u32x8 v69 = v68 - splat_u32x8(796917760u);
      const i32x8 v70 = v69 > splat_u32x8(536870912u);
      for (i64 i2 = 0; i2 < 2; i2++) {
        for (i64 i1 = i2; i1 < 7; i1 += 2) {
          const i64 v71 = i1 * 8;
          const f32x8 v72 = load_f32x8(panel0 + v71);
          const u32x8 v73 = (u32x8)v72 - splat_u32x8(536870912u) & splat_u32x8(1073741824u);
          const _Bool v74 = reduce_or_i32x8(((v73 != splat_u32x8(0u)) & (v62)) | (v70)) != 0;
          f32x8 quotient1 = v72;
          if (v74) {
            const u32x8 quotient1_b0 = (u32x8)v72 & splat_u32x8(2147483647u);
            const _Bool quotient1_b1 = reduce_or_i32x8((((quotient1_b0 - splat_u32x8(1u) < splat_u32x8(310378495u)) | (quotient1_b0 >= splat_u32x8(1820327936u))) & (v62)) | (v70)) != 0;
            if (quotient1_b1) {
              quotient1 = v72 / v66;
            } else {
              const f32x8 quotient1_c0 = v72 * v67;
              quotient1 = fma_f32x8(-fma_f32x8(quotient1_c0, v66, -v72), v67, quotient1_c0);
            }
          } else {
            const f32x8 quotient1_a0 = v72 * v67;
            quotient1 = fma_f32x8(-fma_f32x8(quotient1_a0, v66, -v72), v67, quotient1_a0);
          }
          const f32x8 v75 = quotient1;
          store_if_f32x8(panel1 + v71, v62, v75);
        }
      }
      store_if_f32x8(t1 + r1, v62, v65);
      const i64 v76 = r1 * 7;
      const i64 v77 = v76 + ((1 < v19) ? 7 : 0);
      const i64 v78 = v77 + ((2 < v19) ? 7 : 0);
      const i64 v79 = v78 + ((3 < v19) ? 7 : 0);
      const i64 v80 = v79 + ((4 < v19) ? 7 : 0);
      const i64 v81 = v80 + ((5 < v19) ? 7 : 0);
      const i64 v82 = v81 + ((6 < v19) ? 7 : 0);
      const i64 v83 = v82 + ((7 < v19) ? 7 : 0);
      const _Bool v84 = 8 <= v19;
      for (i64 c1 = 0; c1 < 7; c1 += 4) {
        const i64 v85 = 7 - c1;
        const i32x4 v86 = iota_i32x4() < splat_i32x4((i32)min_i64(v85, 4));
        const i64 v87 = c1 * 8;
        const i64 v88 = (c1 + 1) * 8;
        const i64 v89 = (c1 + 2) * 8;
        const i64 v90 = (c1 + 3) * 8;
        const f32x8 v91 = load_f32x8(panel1 + v87);
        const f32x8 v92 = load_f32x8(panel1 + v88);
        const f32x8 v93 = load_f32x8(panel1 + v89);
        const f32x8 v94 = load_f32x8(panel1 + v90);
        const f32x8 v95 = __builtin_shufflevector(v91, v93, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v96 = __builtin_shufflevector(v92, v94, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 v97 = __builtin_shufflevector(v91, v93, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v98 = __builtin_shufflevector(v92, v94, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 v99 = __builtin_shufflevector(v95, v96, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v100 = __builtin_shufflevector(v95, v96, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 v101 = __builtin_shufflevector(v97, v98, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 v102 = __builtin_shufflevector(v97, v98, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v103 = v76 + c1;
        const i64 v104 = v77 + c1;
        const i64 v105 = v78 + c1;
        const i64 v106 = v79 + c1;
        const i64 v107 = v80 + c1;
        const i64 v108 = v81 + c1;
        const i64 v109 = v82 + c1;
        const i64 v110 = v83 + c1;
        if (v84) {
          store_if_f32x4(t2 + v103, v86, __builtin_shufflevector(v99, v99, 0, 1, 2, 3));
          store_if_f32x4(t2 + v104, v86, __builtin_shufflevector(v100, v100, 0, 1, 2, 3));
          store_if_f32x4(t2 + v105, v86, __builtin_shufflevector(v101, v101, 0, 1, 2, 3));
          store_if_f32x4(t2 + v106, v86, __builtin_shufflevector(v102, v102, 0, 1, 2, 3));
          store_if_f32x4(t2 + v107, v86, __builtin_shufflevector(v99, v99, 4, 5, 6, 7));
          store_if_f32x4(t2 + v108, v86, __builtin_shufflevector(v100, v100, 4, 5, 6, 7));
          store_if_f32x4(t2 + v109, v86, __builtin_shufflevector(v101, v101, 4, 5, 6, 7));
          store_if_f32x4(t2 + v110, v86, __builtin_shufflevector(v102, v102, 4, 5, 6, 7));
        } else {
          if (0 < v19) {
            store_if_f32x4(t2 + v103, v86, __builtin_shufflevector(v99, v99, 0, 1, 2, 3));
          }
          if (1 < v19) {
            store_if_f32x4(t2 + v104, v86, __builtin_shufflevector(v100, v100, 0, 1, 2, 3));
          }
          if (2 < v19) {
            store_if_f32x4(t2 + v105, v86, __builtin_shufflevector(v101, v101, 0, 1, 2, 3));
          }
          if (3 < v19) {
            store_if_f32x4(t2 + v106, v86, __builtin_shufflevector(v102, v102, 0, 1, 2, 3));
          }
          if (4 < v19) {
            store_if_f32x4(t2 + v107, v86, __builtin_shufflevector(v99, v99, 4, 5, 6, 7));
          }
          if (5 < v19) {
            store_if_f32x4(t2 + v108, v86, __builtin_shufflevector(v100, v100, 4, 5, 6, 7));
          }
          if (6 < v19) {
            store_if_f32x4(t2 + v109, v86, __builtin_shufflevector(v101, v101, 4, 5, 6, 7));
          }
          if (7 < v19) {
            store_if_f32x4(t2 + v110, v86, __builtin_shufflevector(v102, v102, 4, 5, 6, 7));
          }
        }
      }
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_ad5935b44449(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_ad5935b44449(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, arguments[3].number, start, stop, scratch);
}
