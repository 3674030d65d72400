// One source, several instruction sets: GCC and Clang pick the best version at load time.
//
// AXIL_MULTIVERSION is 1 where CMake found that this works (x86-64 with glibc); elsewhere there is one version. AXIL_PLAIN is 1
// where the extensions of GCC and Clang are to be left alone, as other compilers must.
#pragma once

#if (defined(__GNUC__) || defined(__clang__)) && !AXIL_PLAIN  // clang-cl is the second alone
#define AXIL_GNU 1
#else
#define AXIL_GNU 0
#endif

#if AXIL_GNU
#define AXIL_INLINE __attribute__((always_inline)) inline
#define AXIL_INLINE_LAMBDA __attribute__((always_inline))
#define AXIL_NOINLINE __attribute__((noinline))
#define AXIL_RESTRICT __restrict__
#define AXIL_UNROLL _Pragma("GCC unroll 16")
#define AXIL_PREFETCH(ADDRESS) __builtin_prefetch(ADDRESS, 1)
#define AXIL_PREFETCH_READ(ADDRESS) __builtin_prefetch(ADDRESS, 0)
#define AXIL_VECTOR(NAME, REAL, LANES) typedef REAL NAME __attribute__((vector_size((LANES) * sizeof(REAL))))
#else
#define AXIL_INLINE inline
#define AXIL_INLINE_LAMBDA
#define AXIL_NOINLINE
#define AXIL_RESTRICT
#define AXIL_UNROLL
#define AXIL_PREFETCH(ADDRESS)
#define AXIL_PREFETCH_READ(ADDRESS)
#define AXIL_VECTOR(NAME, REAL, LANES)
#endif

// AXIL_VERSIONS(f, (int x), (x)) defines f(int x) to call f_lanes<W>(x), W the doubles in a vector register.
// The templates it calls must be AXIL_INLINE all the way down, and lambdas AXIL_INLINE_LAMBDA after their parameters: only what is
// inlined takes on the instruction set.
#if AXIL_MULTIVERSION
#define AXIL_VERSIONS(NAME, PARAMETERS, ARGUMENTS)                                                \
    __attribute__((target("arch=x86-64-v4"))) void NAME PARAMETERS { NAME##_lanes<8> ARGUMENTS; } \
    __attribute__((target("arch=x86-64-v3"))) void NAME PARAMETERS { NAME##_lanes<4> ARGUMENTS; } \
    __attribute__((target("default"))) void NAME PARAMETERS { NAME##_lanes<2> ARGUMENTS; }
#elif AXIL_GNU
#define AXIL_VERSIONS(NAME, PARAMETERS, ARGUMENTS) \
    void NAME PARAMETERS { NAME##_lanes<2> ARGUMENTS; }
#else
#define AXIL_VERSIONS(NAME, PARAMETERS, ARGUMENTS) \
    void NAME PARAMETERS { NAME##_lanes<1> ARGUMENTS; }
#endif

namespace axil {

// Which version this machine runs.
inline const char* instruction_set() {
#if AXIL_MULTIVERSION
    if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
    if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
#endif
    return "baseline";
}

}  // namespace axil
