// faults.cuh -- debug builds (CPU only): a wild index becomes an error with file and line instead of a memory access.
//
// Accessors of `Env` take their caller's place as default arguments; arrays inside State and Shared are checked by
// the compiler's own -fsanitize=bounds, whose report arrives in the handlers below. Other builds: nothing of it.
#pragma once
#include "drive/halves.cuh"

#ifdef DEBUG_BOUNDS
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

struct Fault { int line, env; i64 index, limit; char what[64], file[256]; };  // line 0: none
static Fault fault;
static thread_local jmp_buf fault_exit;
static thread_local int fault_env;
static thread_local const char* volatile fault_function = "";  // of the environment: which one runs, or ran last
#define ENTER(name) fault_function = #name

[[noreturn]] inline void raise_fault(const char* what, const char* file, int line, i64 index, i64 limit) {
  if (__sync_bool_compare_and_swap(&fault.line, 0, line > 0 ? line : 1)) {  // the first of all threads is kept
    fault.env = fault_env; fault.index = index; fault.limit = limit;
    strncpy(fault.what, what, sizeof(fault.what) - 1);
    strncpy(fault.file, file, sizeof(fault.file) - 1);
  }
  longjmp(fault_exit, 1);
}

inline int Index::within(i64 size, const char* what) const {
  if (i < 0 || i >= size) raise_fault(what, file, line, i, size);
  return (int)i;
}
struct Row {
  obs_t* data; int size;
  obs_t& operator[](Index at) const {
    return data[at.within(size, "observation entry")];
  }
};
#define CALLER , const char* file = __builtin_FILE(), int line = __builtin_LINE()
#define CHECK_INDEX(index, limit, what) if ((index) < 0 || (index) >= (limit)) raise_fault(what, file, line, index, limit)
#define ROW(data, size) Row{data, size}

// What the compilers of -fsanitize=bounds call (their run-time interface: a source location first, then two types).
struct BoundsReport { const char* file; u32 line, column; const u16* array_type; const u16* index_type; };
extern "C" void __ubsan_handle_out_of_bounds_abort(BoundsReport* at, u64 index) {
  raise_fault("array element", at->file, (int)at->line, (i64)index, -1);
}
extern "C" void __ubsan_handle_out_of_bounds(BoundsReport* at, u64 index) { __ubsan_handle_out_of_bounds_abort(at, index); }

// For a process that tries a new kernel (cupydrive/executors/trial_process.py): says in which function and environment a
// signal came, which then ends the process as it would have. On a stack of its own, since an endless recursion leaves none.
inline void report_signal(int number) {
  dprintf(1, "inside %s %d\n", fault_function, fault_env);
  signal(number, SIG_DFL);
  raise(number);
}
extern "C" void report_signals() {
  static char memory[1 << 16];
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = sizeof(memory);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = report_signal;
  action.sa_flags = SA_ONSTACK;
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
  for (int number : numbers) sigaction(number, &action, nullptr);
}

// Runs `body` for one environment; a fault ends the launch.
#define GUARDED(e, body) { fault_env = e; if (setjmp(fault_exit) == 0) { body; } if (fault.line != 0) return; }

#else
typedef obs_t* Row;
#define ENTER(name) (void)0
#define CALLER
#define CHECK_INDEX(index, limit, what)
#define ROW(data, size) (data)
#define GUARDED(e, body) { body; }
#endif
