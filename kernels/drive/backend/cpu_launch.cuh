// cpu_launch.cuh -- kernels of a CPU: functions that run [first, last) in the calling thread, or (TEAM_THREADS) in a team's.
#pragma once

extern "C" int cache_bytes() { return CACHE_BYTES; }

// As CuPy's -ftz=true does on the GPU: denormal inputs and results are 0. Restored on leaving, since NumPy and torch
// run in the same thread.
struct FlushDenormals {
#if defined(__x86_64__) || defined(__i386__)
  u32 before;
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
// What one member of a team runs: a kernel's text, for each of [first, last) in turn.
template <class Work, class Body> struct TeamTask {
  Body* body;
  Work* work;
  int first, last, steps, rank;

  static void* run(void* argument) {
    const TeamTask& task = *(TeamTask*)argument;
    const FlushDenormals flush;
    rendezvous.wait(task.rank);
    for (int e = task.first; e < task.last; ++e) {
      if (e > task.first) Team{task.rank}.sync();  // one Workspace serves all elements, each of which has it alone
      (*task.body)(Team{task.rank}, task.work, e, 1, 0, task.steps);
    }
    rendezvous.finish(task.rank);
    return nullptr;
  }
};

// Returns 1 if the members have called different numbers of syncs, -1 if a thread cannot be made.
template <int LANES, class Work = Workspace, class Body> int run(int first, int last, const int steps, int, Body body) {
  static_assert(LANES == 1, "a team of threads has one environment at a time");
  static Work work;
  pthread_t threads[TEAM];
  TeamTask<Work, Body> tasks[TEAM];
  rendezvous.open((u32)first + 1u);
  for (int i = 0; i < TEAM; ++i) {
    tasks[i] = {&body, &work, first, last, steps, i};
    if (pthread_create(&threads[i], nullptr, TeamTask<Work, Body>::run, &tasks[i]) != 0) return -1;
  }
  sem_post(&rendezvous.turn[rendezvous.order[0]]);
  for (int i = 0; i < TEAM; ++i) pthread_join(threads[i], nullptr);
  return rendezvous.uneven ? 1 : 0;
}
#else
// What a block keeps from piece to piece stays in the processor's cache.
constexpr int BLOCK_ENVS = 4096;
template <int LANES, class Work, class Body> void run_pieces(int first, int last, const int steps, const int piece, Body body) {
  for (int end; first < last; first = end) {
    end = last - first < BLOCK_ENVS ? last : first + BLOCK_ENVS;
    for (int from = 0, until; from < steps; from = until) {
      until = steps - from < piece ? steps : from + piece;
      for (int e = first; e < end; e += LANES) {
        Work work;
        GUARDED(e, body(Team{0}, &work, e, end - e < LANES ? end - e : LANES, from, until))
      }
    }
  }
}
template <int LANES, class Work = Workspace, class Body>
int run(int first, int last, const int steps, const int piece, Body body) {
  const FlushDenormals flush;
  run_pieces<LANES, Work>(first, last, steps, piece, body);
  return 0;
}
#ifdef DEBUG_BOUNDS
extern "C" const Fault* last_fault() { return &fault; }
#endif
#endif

// A kernel for several members: of those of all, elements [begin, end), `count` of each member.
template <class Call>
int run_members(int (*kernel)(const Call*, int, int), const Call* calls, const i64 count, i64 begin, const i64 end) {
  int code = 0;
  while (begin < end) {
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

// A crew is a team, and its block's memory is its own.
#define KERNEL_OF_CREWS(name, Call, size, Block, load, body)                                                    \
  extern "C" int name(const Call* argument, int begin, int end);                                                \
  KERNEL_OF_MEMBERS(name, Call)                                                                                 \
  extern "C" int name(const Call* argument, int begin, int end) {                                               \
    const Call& call = *argument;                                                                               \
    return run<1, Block>(begin, end, 1, 1, [&](const Team team, Block* const work, const int first, int, int, int) INLINED { \
      const Crew crew{team.rank};                                                                               \
      Block& block = *work;                                                                                     \
      const int thread = team.rank;                                                                             \
      constexpr int number = 0, threads = Crew::SIZE;                                                           \
      (void)thread; (void)threads;                                                                              \
      load;                                                                                                     \
      crew.sync();                                                                                              \
      body;                                                                                                     \
    });                                                                                                         \
  }
