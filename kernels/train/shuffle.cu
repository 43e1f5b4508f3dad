// shuffle.cu -- a random permutation of [0, n) without sorting, and random elements of [0, n).
//
// Source: Black & Rogaway 2002, "Ciphers with arbitrary finite domains": a Feistel network permutes [0, 4^k), and an
// element that lands outside of [0, n) is permuted again until it lands inside. The rounds' keys come from Philox.
#include "drive/random.cuh"

constexpr int ROUNDS = 8;

struct Workspace {};
struct Shuffle {
  int size;             // n, from 1 to 2^30
  int draw;             // which permutation of this count
  const u64* seed;      // (1)
  const i64* count;     // (1): iterations so far
  i64* index;           // (n)
};

// A mixture of 32 bits, each output bit of which depends on all input bits (Wellons' lowbias32).
DEVICE u32 mix(u32 x) {
  x ^= x >> 16; x *= 0x7feb352du;
  x ^= x >> 15; x *= 0x846ca68bu;
  return x ^ x >> 16;
}

DEVICE void shuffle_element(const Shuffle& call, const int i) {
  int half = 1;  // bits of one half
  while (half < 15 && (1 << 2 * half) < call.size) half += 1;
  const u32 low = (1u << half) - 1u;
  u32 key[ROUNDS];
  for (int k = 0; k < ROUNDS; k += 4) {
    const auto bits = Random{*call.seed, (u32)*call.count, (u32)(*call.count >> 32), (u32)call.draw, SHUFFLE}.bits(0, k / 4);
    key[k] = bits.x; key[k + 1] = bits.y; key[k + 2] = bits.z; key[k + 3] = bits.w;
  }
  u32 x = (u32)i;
  do {
    u32 left = x >> half, right = x & low;
    for (int k = 0; k < ROUNDS; ++k) {
      const u32 next = left ^ (mix(right ^ key[k]) & low);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= (u32)call.size);
  call.index[i] = x;
}

struct Draw {
  int size;             // elements to draw
  int draw;             // which draw of this count
  const u64* seed;      // (1)
  const i64* count;     // (1): iterations so far
  const i64* limit;     // (1): n, from 1 to 2^32
  i64* index;           // (size), in [0, n), with replacement
};

DEVICE void draw_element(const Draw& call, const int i) {
  const Random random{*call.seed, (u32)*call.count, (u32)i, (u32)call.draw, SHUFFLE};
  call.index[i] = (i64)(((u64)random.bits(1).x * (u64)*call.limit) >> 32);
}

#include "drive/launch.cuh"
KERNEL(shuffle, Shuffle, call.size, shuffle_element(call, e))
KERNEL(draw, Draw, call.size, draw_element(call, e))
