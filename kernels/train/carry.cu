// carry.cu -- Carry data from one rollout to the next: the last row of several arrays becomes their first row.
//
// Constants: ARRAYS.
#include "drive/platform.cuh"

constexpr int PIECE = 16;  // bytes per element of the launch

struct Workspace {};
struct Carry {
  int begin[ARRAYS + 1];  // elements of the arrays before each one, ceil(bytes / PIECE) per array, then of all
  i64 bytes[ARRAYS];      // of one row
  const u8* from[ARRAYS];
  u8* to[ARRAYS];
};

// Copy the words of one piece, if both addresses and the size are aligned to them.
template <class Word> DEVICE bool carry_words(u8* to, const u8* from, const int bytes) {
  constexpr int SIZE = sizeof(Word);
  if (((size_type)to | (size_type)from | (size_type)bytes) % SIZE != 0) return false;
  UNROLL for (int k = 0; k < PIECE / SIZE; ++k) {  // mutant(swap /, swap <): more work, same result
    if (k * SIZE < bytes) ((Word*)to)[k] = ((const Word*)from)[k];
  }
  return true;
}

DEVICE void carry_piece(const Carry& call, const int e) {
  int array = 0;
  while (e >= call.begin[array + 1]) array += 1;
  const i64 start = (i64)(e - call.begin[array]) * PIECE, left = call.bytes[array] - start;
  const int bytes = left < PIECE ? (int)left : PIECE;  // mutant(swap <): same number
  u8* const to = call.to[array] + start;
  const u8* const from = call.from[array] + start;
  // mutant(swap &&): more work, same result
  if (!carry_words<u64>(to, from, bytes) && !carry_words<u32>(to, from, bytes)) carry_words<u8>(to, from, bytes);
}

#include "drive/launch.cuh"
KERNEL(carry, Carry, call.begin[ARRAYS], carry_piece(call, e))
