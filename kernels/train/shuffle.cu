// shuffle.cu -- A random permutation of [0, n) without sorting, and random elements of [0, n).
#include "train/cipher.cuh"

struct Workspace {};
struct Shuffle {
  int size;             // n, from 1 to 2^30
  int draw;             // index of the permutation within the iteration
  const u64* seed;      // (1)
  const i64* count;     // (1): iterations so far
  i64* index;           // (n)
};

DEVICE void shuffle_element(const Shuffle& call, const int i) {
  const Random random{*call.seed, (u32)*call.count, (u32)(*call.count >> 32), (u32)call.draw, SHUFFLE};
  call.index[i] = Cipher(call.size, random, 0, 0).of(i);
}

struct Draw {
  int size;             // number of elements to draw
  int draw;             // index of the draw within the iteration
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
