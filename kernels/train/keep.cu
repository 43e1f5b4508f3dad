// keep.cu -- copies all that a run's future depends on, as long as its numbers have been finite.
//
// The host hears late of a number that is not: what was copied last, of before that number, then still stands.
#include "drive/platform.cuh"

constexpr i64 NONE_FOUND = 0x7fffffffffffffff;

struct Workspace {};
// Bytes of one array that one team copies.
struct Chunk {
  const u8* from;
  u8* to;
  i64 bytes;
};
struct Keep {
  int chunks;
  int watched;              // W
  int learners;             // L
  const i64* nonfinite;     // (W): as finite.cu leaves it
  const float* const* bad;  // (L): where each learner says that a loss or gradient was not finite
  const Chunk* chunk;       // (chunks)
};

DEVICE bool is_sound(const Keep& call) {
  for (int k = 0; k < call.watched; ++k) {
    if (call.nonfinite[k] != NONE_FOUND) return false;
  }
  for (int k = 0; k < call.learners; ++k) {
    if (*call.bad[k] > 0.0f) return false;  // equal(constant): it is 0 or 1
  }
  return true;
}

// Words of one chunk, if both ends are aligned to them.
template <class Word> DEVICE bool keep_words(const Team team, const Chunk& chunk) {
  constexpr int SIZE = sizeof(Word);
  if (((size_type)chunk.to | (size_type)chunk.from | (size_type)chunk.bytes) % SIZE != 0) return false;
  Word* const to = (Word*)chunk.to;
  const Word* const from = (const Word*)chunk.from;
  for (int k : team.each((int)(chunk.bytes / SIZE))) to[k] = from[k];
  return true;
}

DEVICE void keep_chunk(const Keep& call, const Team team, const int e) {
  if (!is_sound(call)) return;
  const Chunk chunk = call.chunk[e];
  // equal(swap &&): more work, same result
  if (!keep_words<u64>(team, chunk) && !keep_words<u32>(team, chunk)) keep_words<u8>(team, chunk);
}

#include "drive/launch.cuh"
KERNEL(keep, Keep, call.chunks, keep_chunk(call, team, e))
