// cpu.cuh -- Types and qualifiers of a CPU, for a C++ compiler. platform.cuh lists the definitions of a backend.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef size_t size_type;
#define DEVICE inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))
#define MAY_ALIAS [[gnu::may_alias]]
#define UNROLL
#define NO_UNROLL
#define UNROLL_TIMES(n)
#define UNROLL_OWN
#define LOOP_OF_OWN(index, team, n) for (index : (team).each(n))
#define OFFSET_OF(type, member) __builtin_offsetof(type, member)
#define REGISTERS_HAVE_NO_INDEX 0

#include "drive/backend/cpu_faults.cuh"
#ifdef COUNT_OPERATIONS
#include "drive/counting.cuh"
#endif
