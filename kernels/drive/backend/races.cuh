// races.cuh -- which member of a team of threads writes what between two syncs: the same bytes by two of them are a race.
//
// On a GPU both write at once, and of `x += 1` by two members one is lost, now and then. Here they take turns, and nothing is
// lost. So when a turn ends, what the team has near (a kernel's Work) is compared with what it was when the turn began. To write
// what is there already is not seen, and does no harm.
#pragma once

namespace faults {
// Of a kernel that is no environment's: `drive/entries.cuh` knows more of a Workspace.
template <class Work> void name_entry(const Work&, size_type, char (&)[64]) {}

struct Races {
  const u8* near;
  u8* before;                // what was near when this turn began
  u32* writer;               // of each byte: the round and the member that changed it last
  size_type bytes;
  u32 round;                 // of turns, from 1 on: each sync begins another
  void (*name)(const void* work, size_type at, char (&text)[64]);

  // `copy` is what `work` is now: at first both are 0, and every turn ends with a look.
  template <class Work> void watch(const Work& work, u8* copy, u32* writers) {
    near = (const u8*)&work; before = copy; writer = writers; bytes = sizeof(Work);
    name = [](const void* of, size_type at, char (&text)[64]) { name_entry(*(const Work*)of, at, text); };
  }
  // The turn of `rank` is over.
  void look(const int rank) {
    constexpr int PIECE = 64;  // bytes that are compared at once
    const u32 mine = round * TEAM + (u32)rank;
    for (size_type from = 0; from < bytes; from += PIECE) {  // equal(swap <): one empty piece more
      const size_type until = bytes - from < PIECE ? bytes : from + PIECE;  // equal(swap <): both ends are equal, too
      if (memcmp(near + from, before + from, until - from) == 0) continue;  // equal(swap -): compares the same bytes again
      for (size_type at = from; at < until; ++at) {  // equal(swap <): a byte of the next piece
        if (near[at] == before[at]) continue;
        if (writer[at] / TEAM == round && writer[at] != mine) report(rank, at);
        writer[at] = mine;
        before[at] = near[at];
      }
    }
  }
  // Several members may write here between two syncs, as `team.add` does.
  void allow(const void* of, const size_type size) {
    const size_type at = (size_type)((const u8*)of - near);
    if (at < bytes) memcpy(before + at, near + at, size);  // equal(swap <): nothing is added right behind
  }

 private:
  void report(const int rank, const size_type at) const {
    char text[64] = "the team's memory";
    name(near, at, text);
    keep(text, function, 1, rank, RACE);
  }
};
}
