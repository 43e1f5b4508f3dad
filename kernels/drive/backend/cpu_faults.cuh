// cpu_faults.cuh -- Faults of kernels on a CPU. The first fault of all threads is kept, and ends the launch.
//
// Python reads it (cupydrive/executors/trial_process.py) and raises a KernelFault. Everything is in a namespace, which keeps other
// names free for environments.
#pragma once
#include <setjmp.h>
#ifdef TEAM_THREADS
#include <stdio.h>
#endif

namespace faults {
struct Fault { int line, env; i64 index, limit; char what[64], file[256]; };  // line 0: none
// Special values of `limit`, for other faults than an index out of known bounds: an array of unknown length, a division by 0, a
// data race, and data that only another function may access. For a race, `what` is the entry of the team's memory, and `file` is
// the function that wrote it.
enum : i64 { NO_LIMIT = -1, DIVISION = -2, RACE = -3, ELSEWHERE = -4 };
static Fault fault;
#ifdef TEAM_THREADS  // threads take turns, so they share everything except their jump buffers
#define EACH_THREADS static
static int member;  // thread whose turn it is
static jmp_buf ways_out[TEAM];
#define WAY_OUT faults::ways_out[faults::member]
#else
#define EACH_THREADS static thread_local
EACH_THREADS jmp_buf way_out;
#define WAY_OUT faults::way_out  // target of longjmp: `run` (cpu_launch.cuh), which ends the launch
#endif
EACH_THREADS volatile int env;  // environment of this thread, or the first one of a vector
EACH_THREADS const char* volatile function = "";  // environment's function that runs, or ran last, if it calls ENTER

inline void keep(const char* what, const char* file, int line, i64 index, i64 limit) {
  if (!__sync_bool_compare_and_swap(&fault.line, 0, line > 0 ? line : 1)) return;  // mutant(constant 2): line 1 either way
  fault.env = env; fault.index = index; fault.limit = limit;
  // mutant(swap -): one zero more, overwritten next. mutant(constant): no word has 63 characters
  strncpy(fault.what, what, sizeof(fault.what) - 1);
  strncpy(fault.file, file, sizeof(fault.file) - 1);
}
[[noreturn]] inline void leave(const char* what, const char* file, int line, i64 index, i64 limit) {
  keep(what, file, line, index, limit);
  longjmp(WAY_OUT, 1);  // mutant(constant): any number but 0 will do
}

// Handlers that a compiler's -fsanitize= calls on a fault. The first argument has the place in the source, then types.
struct Place { const char* file; u32 line, column; const void* types[2]; };
extern "C" void __ubsan_handle_divrem_overflow_abort(Place* at, u64, u64) { leave("integer", at->file, (int)at->line, 0, DIVISION); }
// mutant(swapped arguments 2): the two are never read
extern "C" void __ubsan_handle_divrem_overflow(Place* at, u64 a, u64 b) { __ubsan_handle_divrem_overflow_abort(at, a, b); }
extern "C" void __ubsan_handle_out_of_bounds_abort(Place* at, u64 index) {
  leave("array element", at->file, (int)at->line, (i64)index, NO_LIMIT);
}
extern "C" void __ubsan_handle_out_of_bounds(Place* at, u64 index) { __ubsan_handle_out_of_bounds_abort(at, index); }
extern "C" const Fault* last_fault() { return &fault; }
}
