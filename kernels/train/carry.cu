// carry.cu -- Copy the last row of several arrays to their first row, before the next rollout.
//
// Constants: ARRAYS.
#include "drive/platform.cuh"

constexpr int VECTOR_BYTES = 16;  // per element of the launch

struct Workspace {};
struct Carry {
  int begin[ARRAYS + 1];  // exclusive prefix sum of ceil(bytes[a] / VECTOR_BYTES). The last one is the total
  i64 bytes[ARRAYS];      // of one row
  const u8* from[ARRAYS];
  u8* to[ARRAYS];
};

// Copy the words of one vector, if both addresses and the size are aligned to them.
template <class Word> DEVICE bool carry_words(u8* to, const u8* from, const int bytes) {
  constexpr int SIZE = sizeof(Word);
  if (((size_type)to | (size_type)from | (size_type)bytes) % SIZE != 0) return false;
  UNROLL for (int k = 0; k < VECTOR_BYTES / SIZE; ++k) {  // mutant(swap /, swap <): more work, same result
    if (k * SIZE < bytes) ((Word*)to)[k] = ((const Word*)from)[k];
  }
  return true;
}

DEVICE void carry_vector(const Carry& call, const int e) {
  int array = 0;
  while (e >= call.begin[array + 1]) array += 1;
  const i64 start = (i64)(e - call.begin[array]) * VECTOR_BYTES, left = call.bytes[array] - start;
  const int bytes = left < VECTOR_BYTES ? (int)left : VECTOR_BYTES;  // mutant(swap <): same number
  u8* const to = call.to[array] + start;
  const u8* const from = call.from[array] + start;
  // mutant(swap &&): more work, same result
  if (!carry_words<u64>(to, from, bytes) && !carry_words<u32>(to, from, bytes)) carry_words<u8>(to, from, bytes);
}

#include "drive/launch.cuh"
KERNEL(carry, Carry, call.begin[ARRAYS], carry_vector(call, e))
