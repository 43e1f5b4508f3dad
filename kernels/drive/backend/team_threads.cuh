// team_threads.cuh -- A team of operating-system threads, to test team code on a CPU.
//
// Between two syncs the threads run one after the other, in an order that is shuffled at every sync. A missing sync therefore shows
// each time, as a value that is read too early or overwritten too soon. A thread that calls fewer syncs than the others is reported
// (`uneven`) instead of waited for. Two threads that write the same bytes between two syncs are also reported (races.cuh).
#pragma once
#include <pthread.h>
#include <semaphore.h>
#include "drive/backend/races.cuh"

// Scheduler of the team's threads. It runs one at a time, until the thread calls `sync`.
struct Rendezvous {
  sem_t turn[TEAM];   // posted when the thread may run
  int order[TEAM];    // ranks in the order in which they run until the next sync
  int position;       // index in `order` of the thread that runs
  u32 shuffle_state;  // linear congruential generator
  bool finished[TEAM], uneven;
  u64 slot[TEAM];     // values that collectives combine
  faults::Races races;

  void open(u32 seed) {
    for (int i = 0; i < TEAM; ++i) { sem_init(&turn[i], 0, 0); order[i] = i; finished[i] = false; }
    uneven = false;
    shuffle_state = seed | 1u;
    shuffle();
  }
  void shuffle() {
    for (int i = TEAM - 1; i > 0; --i) {
      shuffle_state = shuffle_state * 1664525u + 1013904223u;
      const int j = (int)((shuffle_state >> 16) % (u32)(i + 1)), kept = order[i];
      order[i] = order[j]; order[j] = kept;
    }
    position = 0;
    races.round += 1;
  }
  void wait(int rank) {
    while (sem_wait(&turn[rank]) != 0) {}
    faults::member = rank;
  }
  // End the turn of `rank`. Returns the thread that runs next, or -1 when all have finished.
  int next(int rank) {
    for (int tries = 0; tries <= 2 * TEAM; ++tries) {
      if (++position >= TEAM) shuffle();
      if (!finished[order[position]]) return order[position];
      if (!finished[rank]) uneven = true;
    }
    return -1;
  }
  __attribute__((noinline)) void arrive(int rank) {
    races.look(rank);
    const int who = next(rank);
    if (who != rank) { sem_post(&turn[who]); wait(rank); }
  }
  void finish(int rank) {
    races.look(rank);
    finished[rank] = true;
    const int who = next(rank);
    if (who >= 0) sem_post(&turn[who]);
  }
};
static Rendezvous rendezvous;

struct Team : Member {
  using Member::sum, Member::min, Member::before, Member::add;  // these reject floats
  void sync() const { rendezvous.arrive(rank); }
  bool any(bool mine) const { return reduce<int>(mine, [](int a, int b) { return a | b; }); }
  bool sector_any(bool mine, u32) const { return mine; }
  u32 sector_lanes() const { return 0; }
  bool warp_any(bool mine) const { return mine; }
  void in_step(int) const {}
  int sum(int mine) const { return reduce<int>(mine, [](int a, int b) { return a + b; }); }
  template <class T> T min(T mine) const { return reduce<T>(mine, [](T a, T b) { return b < a ? b : a; }); }
  int before(int mine, int* all) const {
    rendezvous.slot[rank] = (u64)mine;
    sync();  // slots are written before they are read
    int sum = 0;
    *all = 0;
    for (int i = 0; i < TEAM; ++i) {
      if (i == rank) sum = *all;
      *all += (int)rendezvous.slot[i];
    }
    sync();  // slots are read before they are overwritten
    return sum;
  }
  template <int N> int add(Array<int, N>& words, int i, int value) const {
    const int before = words.of[i];
    words.of[i] += value;
    rendezvous.races.allow(&words.of[i], sizeof(int));
    return before;
  }

 private:
  template <class T, class F> T reduce(T mine, F both) const {
    rendezvous.slot[rank] = (u64)mine;
    sync();  // slots are written before they are read
    T all = (T)rendezvous.slot[0];
    for (int i = 1; i < TEAM; ++i) all = both(all, (T)rendezvous.slot[i]);
    sync();  // slots are read before they are overwritten
    return all;
  }
};
