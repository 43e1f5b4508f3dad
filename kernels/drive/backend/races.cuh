// races.cuh -- Detect data races in a team of CPU threads: two threads that write the same bytes between two syncs.
//
// On a GPU both write at once, and one of two `x += 1` is lost now and then. Here threads take turns, and nothing is lost. After
// each turn the team's memory (a kernel's Work) is therefore compared with its content before the turn. Writing a value that is
// already there is not detected, and does no harm.
#pragma once

namespace faults {
// For kernels other than an environment's. `drive/entries.cuh` can name the entries of a Workspace.
template <class Work> void name_entry(const Work&, size_type, char (&)[64]) {}

struct Races {
  const u8* memory;
  u8* before;                // content of memory when this turn began
  u32* writer;               // of each byte: round and thread of its last change
  size_type bytes;
  u32 round;                 // of turns, from 1 on. Each sync begins another
  void (*name)(const void* work, size_type at, char (&text)[64]);

  // Watch `work`, of which `look` updates `copy` after every turn. Both begin as NaN, which shows what is read before it is written:
  // a GPU does not clear shared memory.
  template <class Work> void watch(Work& work, u8* copy, u32* writers) {
    memset((void*)&work, 0xFF, sizeof(Work));
    memset(copy, 0xFF, sizeof(Work));
    memory = (const u8*)&work; before = copy; writer = writers; bytes = sizeof(Work);
    name = [](const void* of, size_type at, char (&text)[64]) { name_entry(*(const Work*)of, at, text); };
  }
  // End the turn of `rank`: find the bytes that it changed, and report those that another thread has also changed since the last
  // sync.
  void look(const int rank) {
    constexpr int PIECE = 64;  // bytes that are compared at once
    const u32 mine = round * TEAM + (u32)rank;
    for (size_type from = 0; from < bytes; from += PIECE) {  // mutant(swap <): one empty piece more
      const size_type until = bytes - from < PIECE ? bytes : from + PIECE;  // mutant(swap <): both ends are equal, too
      if (memcmp(memory + from, before + from, until - from) == 0) continue;  // mutant(swap -): compares the same bytes again
      for (size_type at = from; at < until; ++at) {  // mutant(swap <): a byte of the next piece
        if (memory[at] == before[at]) continue;
        if (writer[at] / TEAM == round && writer[at] != mine) report(rank, at);
        writer[at] = mine;
        before[at] = memory[at];
      }
    }
  }
  // Allow several threads to write here between two syncs, as `team.add` does.
  void allow(const void* of, const size_type size) {
    const size_type at = (size_type)((const u8*)of - memory);
    if (at < bytes) memcpy(before + at, memory + at, size);  // mutant(swap <): nothing is added right behind
  }

 private:
  void report(const int rank, const size_type at) const {
    char text[64] = "the team's memory";
    name(memory, at, text);
    keep(text, function, 1, rank, RACE);
  }
};
}
