/* kernel rows_fa4d86dfee5c */

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
typedef __UINT64_TYPE__ u64 __attribute__((may_alias));
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
static inline __attribute__((always_inline)) i64 add_i64(i64 a, i64 b) {
  return (i64)((u64)a + (u64)b);
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
      const i64 v23 = stop - r1;
      const i64 v24 = r1 * 7;
      const _Bool v25 = 1 < v23;
      const i64 v26 = v25 ? 7 : 0;
      const i64 v27 = v24 + v26;
      const _Bool v28 = 2 < v23;
      const i64 v29 = v28 ? 7 : 0;
      const i64 v30 = v27 + v29;
      const _Bool v31 = 3 < v23;
      const i64 v32 = v31 ? 7 : 0;
      const i64 v33 = v30 + v32;
      const _Bool v34 = 4 < v23;
      const i64 v35 = v34 ? 7 : 0;
      const i64 v36 = v33 + v35;
      const _Bool v37 = 5 < v23;
      const i64 v38 = v37 ? 7 : 0;
      const i64 v39 = v36 + v38;
      const _Bool v40 = 6 < v23;
      const i64 v41 = v40 ? 7 : 0;
      const i64 v42 = v39 + v41;
      const _Bool v43 = 7 < v23;
      const i64 v44 = v43 ? 7 : 0;
      const i64 v45 = v42 + v44;
      for (i64 c0 = 0; c0 < 7; c0 += 4) {
        const i64 v46 = 7 - c0;
        const i32x4 v47 = iota_i32x4() < splat_i32x4((i32)min_i64(v46, 4));
        const i64 v48 = v24 + c0;
        const f32x4 v49 = load_if_f32x4(t0 + v48, v47);
        const i64 v50 = v27 + c0;
        const f32x4 v51 = load_if_f32x4(t0 + v50, v47);
        const i64 v52 = v30 + c0;
        const f32x4 v53 = load_if_f32x4(t0 + v52, v47);
        const i64 v54 = v33 + c0;
        const f32x4 v55 = load_if_f32x4(t0 + v54, v47);
        const i64 v56 = v36 + c0;
        const f32x4 v57 = load_if_f32x4(t0 + v56, v47);
        const i64 v58 = v39 + c0;
        const f32x4 v59 = load_if_f32x4(t0 + v58, v47);
        const i64 v60 = v42 + c0;
        const f32x4 v61 = load_if_f32x4(t0 + v60, v47);
        const i64 v62 = v45 + c0;
        const f32x4 v63 = load_if_f32x4(t0 + v62, v47);
        const f32x8 v64 = __builtin_shufflevector(v49, v57, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v65 = __builtin_shufflevector(v51, v59, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v66 = __builtin_shufflevector(v53, v61, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v67 = __builtin_shufflevector(v55, v63, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_4_0 = v64;
        const f32x8 square0_4_1 = v65;
        const f32x8 square0_4_2 = v66;
        const f32x8 square0_4_3 = v67;
        const f32x8 square0_2_0 = __builtin_shufflevector(square0_4_0, square0_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_1 = __builtin_shufflevector(square0_4_1, square0_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_2 = __builtin_shufflevector(square0_4_0, square0_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_2_3 = __builtin_shufflevector(square0_4_1, square0_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_1_0 = __builtin_shufflevector(square0_2_0, square0_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_1 = __builtin_shufflevector(square0_2_0, square0_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square0_1_2 = __builtin_shufflevector(square0_2_2, square0_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_3 = __builtin_shufflevector(square0_2_2, square0_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v68 = c0 * 8;
        store_f32x8(panel0 + v68, square0_1_0);
        const i64 v69 = c0 + 1;
        const i64 v70 = v69 * 8;
        store_f32x8(panel0 + v70, square0_1_1);
        const i64 v71 = c0 + 2;
        const i64 v72 = v71 * 8;
        store_f32x8(panel0 + v72, square0_1_2);
        const i64 v73 = c0 + 3;
        const i64 v74 = v73 * 8;
        store_f32x8(panel0 + v74, square0_1_3);
      }
      const i32x8 v75 = iota_i32x8() < splat_i32x8((i32)min_i64(v23, 8));
      f32x8 a1 = splat_f32x8(0.0f);
      for (i64 i0 = 0; i0 < 7; i0++) {
        const i64 v76 = i0 * 8;
        const f32x8 v77 = load_f32x8(panel0 + v76);
        a1 = a1 + v77;
      }
      const f32x8 v78 = a1;
      const f32x8 v79 = v78 + splat_f32x8(10.0f);
      const f32x8 v80 = splat_f32x8(1.0f) / v79;
      const u32x8 v81 = (u32x8)v79;
      const u32x8 v82 = v81 - splat_u32x8(796917760u);
      const i32x8 v83 = v82 > splat_u32x8(536870912u);
      const i64 v94 = add_i64(1, 1);
      for (i64 i2 = 0; i2 < v94; i2++) {
        for (i64 i1 = i2; i1 < 7; i1 += v94) {
          const i64 v84 = i1 * 8;
          const f32x8 v85 = load_f32x8(panel0 + v84);
          const u32x8 v86 = (u32x8)v85;
          const u32x8 v87 = v86 - splat_u32x8(536870912u);
          const u32x8 v88 = v87 & splat_u32x8(1073741824u);
          const i32x8 v89 = v88 != splat_u32x8(0u);
          const i32x8 v90 = (v89) & (v75);
          const i32x8 v91 = (v90) | (v83);
          const _Bool v92 = reduce_or_i32x8(v91) != 0;
          f32x8 quotient1 = v85;
          if (v92) {
            const u32x8 quotient1_b0 = (u32x8)v85;
            const u32x8 quotient1_b1 = quotient1_b0 & splat_u32x8(2147483647u);
            const i32x8 quotient1_b2 = quotient1_b1 >= splat_u32x8(1820327936u);
            const u32x8 quotient1_b3 = quotient1_b1 - splat_u32x8(1u);
            const i32x8 quotient1_b4 = quotient1_b3 < splat_u32x8(310378495u);
            const i32x8 quotient1_b5 = (quotient1_b4) | (quotient1_b2);
            const i32x8 quotient1_b6 = (quotient1_b5) & (v75);
            const i32x8 quotient1_b7 = (quotient1_b6) | (v83);
            const _Bool quotient1_b8 = reduce_or_i32x8(quotient1_b7) != 0;
            if (quotient1_b8) {
              quotient1 = v85 / v79;
            } else {
              const f32x8 quotient1_c0 = v85 * v80;
              const f32x8 quotient1_c1 = -v85;
              const f32x8 quotient1_c2 = fma_f32x8(quotient1_c0, v79, quotient1_c1);
              const f32x8 quotient1_c3 = -quotient1_c2;
              quotient1 = fma_f32x8(quotient1_c3, v80, quotient1_c0);
            }
          } else {
            const f32x8 quotient1_a0 = v85 * v80;
            const f32x8 quotient1_a1 = -v85;
            const f32x8 quotient1_a2 = fma_f32x8(quotient1_a0, v79, quotient1_a1);
            const f32x8 quotient1_a3 = -quotient1_a2;
            quotient1 = fma_f32x8(quotient1_a3, v80, quotient1_a0);
          }
          const f32x8 v93 = quotient1;
          store_if_f32x8(panel1 + v84, v75, v93);
        }
      }
      store_if_f32x8(t1 + r1, v75, v78);
      const i64 v95 = r1 * 7;
      const _Bool v96 = 1 < v23;
      const i64 v97 = v96 ? 7 : 0;
      const i64 v98 = v95 + v97;
      const _Bool v99 = 2 < v23;
      const i64 v100 = v99 ? 7 : 0;
      const i64 v101 = v98 + v100;
      const _Bool v102 = 3 < v23;
      const i64 v103 = v102 ? 7 : 0;
      const i64 v104 = v101 + v103;
      const _Bool v105 = 4 < v23;
      const i64 v106 = v105 ? 7 : 0;
      const i64 v107 = v104 + v106;
      const _Bool v108 = 5 < v23;
      const i64 v109 = v108 ? 7 : 0;
      const i64 v110 = v107 + v109;
      const _Bool v111 = 6 < v23;
      const i64 v112 = v111 ? 7 : 0;
      const i64 v113 = v110 + v112;
      const _Bool v114 = 7 < v23;
      const i64 v115 = v114 ? 7 : 0;
      const i64 v116 = v113 + v115;
      const _Bool v117 = 8 <= v23;
      for (i64 c1 = 0; c1 < 7; c1 += 4) {
        const i64 v118 = 7 - c1;
        const i32x4 v119 = iota_i32x4() < splat_i32x4((i32)min_i64(v118, 4));
        const i64 v120 = c1 * 8;
        const i64 v121 = c1 + 1;
        const i64 v122 = v121 * 8;
        const i64 v123 = c1 + 2;
        const i64 v124 = v123 * 8;
        const i64 v125 = c1 + 3;
        const i64 v126 = v125 * 8;
        const f32x8 square1_4_0 = load_f32x8(panel1 + v120);
        const f32x8 square1_4_1 = load_f32x8(panel1 + v122);
        const f32x8 square1_4_2 = load_f32x8(panel1 + v124);
        const f32x8 square1_4_3 = load_f32x8(panel1 + v126);
        const f32x8 square1_2_0 = __builtin_shufflevector(square1_4_0, square1_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_1 = __builtin_shufflevector(square1_4_1, square1_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_2 = __builtin_shufflevector(square1_4_0, square1_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_2_3 = __builtin_shufflevector(square1_4_1, square1_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_1_0 = __builtin_shufflevector(square1_2_0, square1_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_1 = __builtin_shufflevector(square1_2_0, square1_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square1_1_2 = __builtin_shufflevector(square1_2_2, square1_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_3 = __builtin_shufflevector(square1_2_2, square1_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v127 = v95 + c1;
        const i64 v128 = v98 + c1;
        const i64 v129 = v101 + c1;
        const i64 v130 = v104 + c1;
        const i64 v131 = v107 + c1;
        const i64 v132 = v110 + c1;
        const i64 v133 = v113 + c1;
        const i64 v134 = v116 + c1;
        if (v117) {
          store_if_f32x4(t2 + v127, v119, __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          store_if_f32x4(t2 + v128, v119, __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          store_if_f32x4(t2 + v129, v119, __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          store_if_f32x4(t2 + v130, v119, __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          store_if_f32x4(t2 + v131, v119, __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          store_if_f32x4(t2 + v132, v119, __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          store_if_f32x4(t2 + v133, v119, __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          store_if_f32x4(t2 + v134, v119, __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
        } else {
          if (0 < v23) {
            store_if_f32x4(t2 + v127, v119, __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          }
          if (1 < v23) {
            store_if_f32x4(t2 + v128, v119, __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          }
          if (2 < v23) {
            store_if_f32x4(t2 + v129, v119, __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          }
          if (3 < v23) {
            store_if_f32x4(t2 + v130, v119, __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          }
          if (4 < v23) {
            store_if_f32x4(t2 + v131, v119, __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          }
          if (5 < v23) {
            store_if_f32x4(t2 + v132, v119, __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          }
          if (6 < v23) {
            store_if_f32x4(t2 + v133, v119, __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          }
          if (7 < v23) {
            store_if_f32x4(t2 + v134, v119, __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
          }
        }
      }
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_fa4d86dfee5c(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_fa4d86dfee5c(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, arguments[3].number, start, stop, scratch);
}
