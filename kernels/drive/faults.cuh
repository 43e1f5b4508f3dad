// faults.cuh -- Debug builds (CPU only): an index out of bounds becomes an error with file and line instead of a memory access.
//
// Accessors of `Env` take their caller's place as default arguments. Arrays inside State and Shared are checked by the compiler's
// own -fsanitize=bounds, whose reports arrive in backend/cpu_faults.cuh. Other builds check nothing.
#pragma once
#include "drive/halves.cuh"

#if defined(DEBUG_BOUNDS) || defined(TEAM_THREADS)
#define ENTER(name) faults::function = #name
#else
#define ENTER(name) (void)0
#endif

#ifdef DEBUG_BOUNDS
#include <signal.h>
#include <stdio.h>

inline int Index::within(i64 size, const char* what) const {
  if (i < 0 || i >= size) faults::leave(what, file, line, i, size);
  return (int)i;
}
struct Row {
  obs_t* data; int size;
  obs_t& operator[](Index at) const {
    return data[at.within(size, "observation entry")];
  }
};
#define CALLER , const char* file = __builtin_FILE(), int line = __builtin_LINE()
#define SAME_CALLER , file, line
#define CHECK_INDEX(index, limit, what) if ((index) < 0 || (index) >= (limit)) faults::leave(what, file, line, index, limit)
// Rows that a function of the environment does not have: actions in `reset`, masks in `step`.
#define CHECK_ROW(row, what) if ((row) == nullptr) faults::leave(what, file, line, 0, faults::ELSEWHERE)
#define ROW(data, size) Row{data, size}

// For a process that tries a new kernel (cupydrive/executors/trial_process.py): report the function and the environment in which a
// signal arrived, which then ends the process as before. The handler has its own stack, since an endless recursion leaves none.
inline void report_signal(int number) {
  dprintf(1, "inside %s %d\n", faults::function, faults::env);
  signal(number, SIG_DFL);
  raise(number);
}
extern "C" void report_signals() {
  static char memory[1 << 16];  // mutant(constant): more room, never read
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

#else
typedef obs_t* Row;
#define CALLER
#define SAME_CALLER
#define CHECK_INDEX(index, limit, what)
#define CHECK_ROW(row, what)
#define ROW(data, size) (data)
#endif
