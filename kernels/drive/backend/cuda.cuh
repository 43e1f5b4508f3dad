// cuda.cuh -- Types and qualifiers of an NVIDIA GPU, for NVRTC. platform.cuh lists the definitions of a backend.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef u64 size_type;
#define DEVICE __device__ __forceinline__
#define INLINED  // for lambdas, all of which NVRTC has inlined
#define MAY_ALIAS
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_TIMES(n) PRAGMA(unroll (n))
#define OFFSET_OF(type, member) ((u64)__INTADDR__(&((type*)0)->member))  // NVRTC 13.0 has no __builtin_offsetof
#define UNROLL_OWN UNROLL_TIMES(FEW_OWN)
// Replacement of `for (index : team.each(n))` in an environment's file. `index` is a declaration.
#define LOOP_OF_OWN(index, team, n) FOR_OWN(team, own_turn, own_index, n) if (index = own_index; true)
#define REGISTERS_HAVE_NO_INDEX 1
