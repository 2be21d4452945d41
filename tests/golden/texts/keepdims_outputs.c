/* kernel rows_e65392fcd9da */

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if !__has_builtin(__builtin_shufflevector)
#error anydim needs a compiler with __builtin_shufflevector: GCC 12, clang or zig cc
#endif

typedef float f32 __attribute__((may_alias));
typedef __INT64_TYPE__ i64 __attribute__((may_alias));
typedef __INT64_TYPE__ i64x4 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef __INT32_TYPE__ i32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef __INT64_TYPE__ i64x8 __attribute__((vector_size(64)));
typedef __UINT32_TYPE__ u32x8 __attribute__((vector_size(32)));
typedef __UINT32_TYPE__ u32 __attribute__((may_alias));
typedef __INT32_TYPE__ i32x8 __attribute__((vector_size(32)));
typedef __UINT64_TYPE__ u64 __attribute__((may_alias));
typedef __INT32_TYPE__ i32x2 __attribute__((vector_size(8)));
typedef __INT32_TYPE__ i32 __attribute__((may_alias));
typedef __UINT8_TYPE__ u8 __attribute__((may_alias));

static inline __attribute__((always_inline)) i64x4 splat_i64x4(i64 a) {
  return (i64x4){a, a, a, a};
}
static inline __attribute__((always_inline)) i64x4 iota_i64x4(void) {
  return (i64x4){0, 1, 2, 3};
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
static inline __attribute__((always_inline)) i64x8 splat_i64x8(i64 a) {
  return (i64x8){a, a, a, a, a, a, a, a};
}
static inline __attribute__((always_inline)) i64x8 iota_i64x8(void) {
  return (i64x8){0, 1, 2, 3, 4, 5, 6, 7};
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
        const i64x4 v47 = splat_i64x4(v46);
        const i64x4 v48 = iota_i64x4() < v47;
        const i64 v49 = v24 + c0;
        const f32x4 v50 = load_if_f32x4(t0 + v49, __builtin_convertvector(v48, i32x4));
        const i64 v51 = v27 + c0;
        const f32x4 v52 = load_if_f32x4(t0 + v51, __builtin_convertvector(v48, i32x4));
        const i64 v53 = v30 + c0;
        const f32x4 v54 = load_if_f32x4(t0 + v53, __builtin_convertvector(v48, i32x4));
        const i64 v55 = v33 + c0;
        const f32x4 v56 = load_if_f32x4(t0 + v55, __builtin_convertvector(v48, i32x4));
        const i64 v57 = v36 + c0;
        const f32x4 v58 = load_if_f32x4(t0 + v57, __builtin_convertvector(v48, i32x4));
        const i64 v59 = v39 + c0;
        const f32x4 v60 = load_if_f32x4(t0 + v59, __builtin_convertvector(v48, i32x4));
        const i64 v61 = v42 + c0;
        const f32x4 v62 = load_if_f32x4(t0 + v61, __builtin_convertvector(v48, i32x4));
        const i64 v63 = v45 + c0;
        const f32x4 v64 = load_if_f32x4(t0 + v63, __builtin_convertvector(v48, i32x4));
        const f32x8 v65 = __builtin_shufflevector(v50, v58, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v66 = __builtin_shufflevector(v52, v60, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v67 = __builtin_shufflevector(v54, v62, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 v68 = __builtin_shufflevector(v56, v64, 0, 1, 2, 3, 4, 5, 6, 7);
        const f32x8 square0_4_0 = v65;
        const f32x8 square0_4_1 = v66;
        const f32x8 square0_4_2 = v67;
        const f32x8 square0_4_3 = v68;
        const f32x8 square0_2_0 = __builtin_shufflevector(square0_4_0, square0_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_1 = __builtin_shufflevector(square0_4_1, square0_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square0_2_2 = __builtin_shufflevector(square0_4_0, square0_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_2_3 = __builtin_shufflevector(square0_4_1, square0_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square0_1_0 = __builtin_shufflevector(square0_2_0, square0_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_1 = __builtin_shufflevector(square0_2_0, square0_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square0_1_2 = __builtin_shufflevector(square0_2_2, square0_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square0_1_3 = __builtin_shufflevector(square0_2_2, square0_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v69 = c0 * 8;
        store_f32x8(panel0 + v69, square0_1_0);
        const i64 v70 = c0 + 1;
        const i64 v71 = v70 * 8;
        store_f32x8(panel0 + v71, square0_1_1);
        const i64 v72 = c0 + 2;
        const i64 v73 = v72 * 8;
        store_f32x8(panel0 + v73, square0_1_2);
        const i64 v74 = c0 + 3;
        const i64 v75 = v74 * 8;
        store_f32x8(panel0 + v75, square0_1_3);
      }
      const i64x8 v76 = splat_i64x8(v23);
      const i64x8 v77 = iota_i64x8() < v76;
      f32x8 a1 = splat_f32x8(0.0f);
      for (i64 i0 = 0; i0 < 7; i0++) {
        const i64 v78 = i0 * 8;
        const f32x8 v79 = load_f32x8(panel0 + v78);
        a1 = a1 + v79;
      }
      const f32x8 v80 = a1;
      const f32x8 v81 = v80 + splat_f32x8(10.0f);
      const f32x8 v82 = splat_f32x8(1.0f) / v81;
      const u32x8 v83 = (u32x8)v81;
      const u32x8 v84 = v83 - splat_u32x8(796917760u);
      const i32x8 v85 = v84 > splat_u32x8(536870912u);
      const i64 v96 = add_i64(1, 1);
      for (i64 i2 = 0; i2 < v96; i2++) {
        for (i64 i1 = i2; i1 < 7; i1 += v96) {
          const i64 v86 = i1 * 8;
          const f32x8 v87 = load_f32x8(panel0 + v86);
          const u32x8 v88 = (u32x8)v87;
          const u32x8 v89 = v88 - splat_u32x8(536870912u);
          const u32x8 v90 = v89 & splat_u32x8(1073741824u);
          const i32x8 v91 = v90 != splat_u32x8(0u);
          const i32x8 v92 = (v91) & (__builtin_convertvector(v77, i32x8));
          const i32x8 v93 = (v92) | (v85);
          const _Bool v94 = reduce_or_i32x8(v93) != 0;
          f32x8 quotient1 = v87;
          if (v94) {
            const u32x8 quotient1_b0 = (u32x8)v87;
            const u32x8 quotient1_b1 = quotient1_b0 & splat_u32x8(2147483647u);
            const i32x8 quotient1_b2 = quotient1_b1 >= splat_u32x8(1820327936u);
            const u32x8 quotient1_b3 = quotient1_b1 - splat_u32x8(1u);
            const i32x8 quotient1_b4 = quotient1_b3 < splat_u32x8(310378495u);
            const i32x8 quotient1_b5 = (quotient1_b4) | (quotient1_b2);
            const i32x8 quotient1_b6 = (quotient1_b5) & (__builtin_convertvector(v77, i32x8));
            const i32x8 quotient1_b7 = (quotient1_b6) | (v85);
            const _Bool quotient1_b8 = reduce_or_i32x8(quotient1_b7) != 0;
            if (quotient1_b8) {
              quotient1 = v87 / v81;
            } else {
              const f32x8 quotient1_c0 = v87 * v82;
              const f32x8 quotient1_c1 = -v87;
              const f32x8 quotient1_c2 = fma_f32x8(quotient1_c0, v81, quotient1_c1);
              const f32x8 quotient1_c3 = -quotient1_c2;
              quotient1 = fma_f32x8(quotient1_c3, v82, quotient1_c0);
            }
          } else {
            const f32x8 quotient1_a0 = v87 * v82;
            const f32x8 quotient1_a1 = -v87;
            const f32x8 quotient1_a2 = fma_f32x8(quotient1_a0, v81, quotient1_a1);
            const f32x8 quotient1_a3 = -quotient1_a2;
            quotient1 = fma_f32x8(quotient1_a3, v82, quotient1_a0);
          }
          const f32x8 v95 = quotient1;
          store_if_f32x8(panel1 + v86, __builtin_convertvector(v77, i32x8), v95);
        }
      }
      store_if_f32x8(t1 + r1, __builtin_convertvector(v77, i32x8), v80);
      const i64 v97 = r1 * 7;
      const _Bool v98 = 1 < v23;
      const i64 v99 = v98 ? 7 : 0;
      const i64 v100 = v97 + v99;
      const _Bool v101 = 2 < v23;
      const i64 v102 = v101 ? 7 : 0;
      const i64 v103 = v100 + v102;
      const _Bool v104 = 3 < v23;
      const i64 v105 = v104 ? 7 : 0;
      const i64 v106 = v103 + v105;
      const _Bool v107 = 4 < v23;
      const i64 v108 = v107 ? 7 : 0;
      const i64 v109 = v106 + v108;
      const _Bool v110 = 5 < v23;
      const i64 v111 = v110 ? 7 : 0;
      const i64 v112 = v109 + v111;
      const _Bool v113 = 6 < v23;
      const i64 v114 = v113 ? 7 : 0;
      const i64 v115 = v112 + v114;
      const _Bool v116 = 7 < v23;
      const i64 v117 = v116 ? 7 : 0;
      const i64 v118 = v115 + v117;
      const _Bool v119 = 8 <= v23;
      for (i64 c1 = 0; c1 < 7; c1 += 4) {
        const i64 v120 = 7 - c1;
        const i64x4 v121 = splat_i64x4(v120);
        const i64x4 v122 = iota_i64x4() < v121;
        const i64 v123 = c1 * 8;
        const i64 v124 = c1 + 1;
        const i64 v125 = v124 * 8;
        const i64 v126 = c1 + 2;
        const i64 v127 = v126 * 8;
        const i64 v128 = c1 + 3;
        const i64 v129 = v128 * 8;
        const f32x8 square1_4_0 = load_f32x8(panel1 + v123);
        const f32x8 square1_4_1 = load_f32x8(panel1 + v125);
        const f32x8 square1_4_2 = load_f32x8(panel1 + v127);
        const f32x8 square1_4_3 = load_f32x8(panel1 + v129);
        const f32x8 square1_2_0 = __builtin_shufflevector(square1_4_0, square1_4_2, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_1 = __builtin_shufflevector(square1_4_1, square1_4_3, 0, 1, 8, 9, 4, 5, 12, 13);
        const f32x8 square1_2_2 = __builtin_shufflevector(square1_4_0, square1_4_2, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_2_3 = __builtin_shufflevector(square1_4_1, square1_4_3, 2, 3, 10, 11, 6, 7, 14, 15);
        const f32x8 square1_1_0 = __builtin_shufflevector(square1_2_0, square1_2_1, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_1 = __builtin_shufflevector(square1_2_0, square1_2_1, 1, 9, 3, 11, 5, 13, 7, 15);
        const f32x8 square1_1_2 = __builtin_shufflevector(square1_2_2, square1_2_3, 0, 8, 2, 10, 4, 12, 6, 14);
        const f32x8 square1_1_3 = __builtin_shufflevector(square1_2_2, square1_2_3, 1, 9, 3, 11, 5, 13, 7, 15);
        const i64 v130 = v97 + c1;
        const i64 v131 = v100 + c1;
        const i64 v132 = v103 + c1;
        const i64 v133 = v106 + c1;
        const i64 v134 = v109 + c1;
        const i64 v135 = v112 + c1;
        const i64 v136 = v115 + c1;
        const i64 v137 = v118 + c1;
        if (v119) {
          store_if_f32x4(t2 + v130, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          store_if_f32x4(t2 + v131, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          store_if_f32x4(t2 + v132, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          store_if_f32x4(t2 + v133, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          store_if_f32x4(t2 + v134, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          store_if_f32x4(t2 + v135, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          store_if_f32x4(t2 + v136, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          store_if_f32x4(t2 + v137, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
        } else {
          if (0 < v23) {
            store_if_f32x4(t2 + v130, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_0, square1_1_0, 0, 1, 2, 3));
          }
          if (1 < v23) {
            store_if_f32x4(t2 + v131, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_1, square1_1_1, 0, 1, 2, 3));
          }
          if (2 < v23) {
            store_if_f32x4(t2 + v132, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_2, square1_1_2, 0, 1, 2, 3));
          }
          if (3 < v23) {
            store_if_f32x4(t2 + v133, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_3, square1_1_3, 0, 1, 2, 3));
          }
          if (4 < v23) {
            store_if_f32x4(t2 + v134, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_0, square1_1_0, 4, 5, 6, 7));
          }
          if (5 < v23) {
            store_if_f32x4(t2 + v135, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_1, square1_1_1, 4, 5, 6, 7));
          }
          if (6 < v23) {
            store_if_f32x4(t2 + v136, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_2, square1_1_2, 4, 5, 6, 7));
          }
          if (7 < v23) {
            store_if_f32x4(t2 + v137, __builtin_convertvector(v122, i32x4), __builtin_shufflevector(square1_1_3, square1_1_3, 4, 5, 6, 7));
          }
        }
      }
    }
  }
}

typedef union { void *pointer; i64 number; } slot;

__attribute__((aligned(16))) void rows_e65392fcd9da(const slot *arguments, i64 start, i64 stop, void *scratch);
void rows_e65392fcd9da(const slot *arguments, i64 start, i64 stop, void *scratch) {
  main_(arguments[0].pointer, arguments[1].pointer, arguments[2].pointer, arguments[3].number, start, stop, scratch);
}
