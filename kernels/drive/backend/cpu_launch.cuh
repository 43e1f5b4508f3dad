// cpu_launch.cuh -- Kernels of a CPU: functions that process elements [first, last) in the calling thread or, with TEAM_THREADS, in
// the threads of a team. They return a bit mask of faults::Ended.
#pragma once

namespace faults { enum Ended { WELL, UNEVEN, FAULTY, NO_THREAD = 4 }; }  // UNEVEN: threads have called different numbers of syncs

extern "C" int cache_bytes() { return CACHE_BYTES; }

// Flush denormal inputs and results to 0, as NVRTC's -ftz=true does on a GPU. The mode is restored on leaving, because NumPy and
// torch run in the same thread.
struct FlushDenormals {
#if defined(__x86_64__) || defined(__i386__)
  u32 before;
  // mutant(constant): a flag that is never read
  FlushDenormals() { before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(before | 0x8040u); }
  ~FlushDenormals() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
  u64 before;
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (1ull << 24)));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
#error "cupydrive: no known way to flush denormals on this processor"
#endif
};

#ifdef TEAM_THREADS
// Task of one thread of a team: runs a kernel's body for each of [first, last) in order.
template <class Work, class Body> struct TeamTask {
  Body* body;
  Work* work;
  int first, last, steps, rank;

  static void* run(void* argument) {
    const TeamTask& task = *(TeamTask*)argument;
    const FlushDenormals flush;
    rendezvous.wait(task.rank);
    if (setjmp(WAY_OUT) == 0) task.each();
    rendezvous.finish(task.rank);
    return nullptr;
  }
  __attribute__((noinline)) void each() const {
    for (int e = first; e < last; ++e) {
      // mutant(swap >): all threads call one more sync
      if (e > first) Team{rank}.sync();  // the Workspace is read before the next element reuses it
      faults::env = e;
      (*body)(Team{rank}, work, e, 1, 0, steps);
    }
  }
};

template <int LANES, class Work = Workspace, class Body> int run(int first, int last, const int steps, int, Body body) {
  static_assert(LANES == 1, "a team of threads has one environment at a time");
  // Memory of this kernel only. `Body` is a local type: dynamic loaders merge static data of equal templates.
  static Work work;
  static u8 before[sizeof(Work)];
  static u32 writer[sizeof(Work)];
  rendezvous.races.watch(work, before, writer);
  pthread_t threads[TEAM];
  TeamTask<Work, Body> tasks[TEAM];
  rendezvous.open((u32)first + 1u);  // mutant(swap +, constant): any seed shuffles
  for (int i = 0; i < TEAM; ++i) {
    tasks[i] = {&body, &work, first, last, steps, i};
    if (pthread_create(&threads[i], nullptr, TeamTask<Work, Body>::run, &tasks[i]) != 0) return faults::NO_THREAD;
  }
  sem_post(&rendezvous.turn[rendezvous.order[0]]);
  for (int i = 0; i < TEAM; ++i) pthread_join(threads[i], nullptr);
  if (rendezvous.uneven && faults::fault.limit == faults::RACE) faults::fault.line = 0;  // no race: the steps differ
  return faults::fault.line != 0 ? faults::FAULTY : rendezvous.uneven ? faults::UNEVEN : faults::WELL;
}
#else
// Environments are processed in blocks, so that a block's data stay in the processor's cache from one piece of steps to the next.
constexpr int BLOCK_ENVS = 4096;
template <int LANES, class Work, class Body>
__attribute__((noinline)) void run_pieces(int first, int last, const int steps, const int piece, Body body) {
  volatile int& at = faults::env;
  for (int end; first < last; first = end) {
    end = last - first < BLOCK_ENVS ? last : first + BLOCK_ENVS;  // mutant(swap <): both ends are equal, too
    for (int from = 0, until; from < steps; from = until) {
      until = steps - from < piece ? steps : from + piece;  // mutant(swap <): both ends are equal, too
      for (int e = first; e < end; e += LANES) {
        Work work;
        at = e;
        body(Team{0}, &work, e, end - e < LANES ? end - e : LANES, from, until);  // mutant(swap <): equal where they meet
      }
    }
  }
}
template <int LANES, class Work = Workspace, class Body>
int run(int first, int last, const int steps, const int piece, Body body) {
  const FlushDenormals flush;
  if (setjmp(WAY_OUT) != 0) return faults::FAULTY;
  run_pieces<LANES, Work>(first, last, steps, piece, body);  // a separate function: setjmp keeps variables out of registers
  return faults::WELL;
}
#endif

// Run a kernel for several members of a population: elements [begin, end) of all, `count` of each member.
template <class Call>
int run_members(int (*kernel)(const Call*, int, int), const Call* calls, const i64 count, i64 begin, const i64 end) {
  int code = faults::WELL;
  while (begin < end) {
    // mutant(swap <): equal where they meet
    const i64 member = begin / count, first = begin - member * count, last = first + end - begin < count ? first + end - begin : count;
    code |= kernel(calls + member, (int)first, (int)last);
    begin += last - first;
  }
  return code;
}
#define KERNEL_OF_MEMBERS(name, Call)                                                                   \
  extern "C" int name##_bytes() { return (int)sizeof(Call); }                                           \
  extern "C" int name##_of_members(const Call* calls, const i64 count, const i64 begin, const i64 end) { \
    return run_members(name, calls, count, begin, end);                                                 \
  }

#define KERNEL_OF_STEPS(name, Call, size, lanes, steps, piece, body)             \
  extern "C" int name(const Call* argument, int first, int last);                \
  KERNEL_OF_MEMBERS(name, Call)                                                  \
  extern "C" int name(const Call* argument, int first, int last) {               \
    const Call& call = *argument;                                                \
    return run<(lanes)>(first, last, steps, piece, BODY(body));                  \
  }

#define KERNEL_AHEAD(name, Call, size, body) KERNEL_OF_STEPS(name, Call, size, 1, 1, 1, body)

// On a CPU a warp set is a team, with block memory of its own.
#define KERNEL_OF_WARP_SETS(name, Call, size, Block, load, body)                                                \
  extern "C" int name(const Call* argument, int begin, int end);                                                \
  KERNEL_OF_MEMBERS(name, Call)                                                                                 \
  extern "C" int name(const Call* argument, int begin, int end) {                                               \
    const Call& call = *argument;                                                                               \
    return run<1, Block>(begin, end, 1, 1, [&](const Team team, Block* const work, const int first, int, int, int) INLINED {  /* mutant(constant 3): one step is one piece */ \
      const WarpSet warps{team.rank};                                                                           \
      Block& block = *work;                                                                                     \
      const int thread = team.rank;                                                                             \
      constexpr int number = 0, threads = WarpSet::SIZE;                                                        \
      (void)thread; (void)threads;                                                                              \
      load;                                                                                                     \
      warps.sync();  /* `load` has written the block's memory before warp sets read it */                       \
      body;                                                                                                     \
    });                                                                                                         \
  }
