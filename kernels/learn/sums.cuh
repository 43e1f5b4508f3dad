// sums.cuh -- even splits of work, and sums whose order depends on neither team nor device: CHAINS partial sums, of which chain c
// has numbers c, c + CHAINS, ..., then a tree over the chains.
#pragma once

// Where the k-th of `shares` even shares of n begins: k * n / shares, rounded down, without its 64 bits. shares < 2^15.
DEVICE int share(const int k, const int n, const int shares) {
  const int each = n / shares;
  return k * each + k * (n - each * shares) / shares;
}

constexpr int CHAINS = 128;  // a power of two

// The sum of the first `used` chains, at least one, for all members. Sync before writing the chains again.
#if defined(__CUDACC__) && TEAM >= 32
// By each warp for itself: members that waited for each other after each half would take three times as long.
template <class T> DEVICE T add_halves(const Team team, const T (&of)[CHAINS], const int used) {
  constexpr int OWN = CHAINS / WARP_SIZE;
  const int lane = team.rank % WARP_SIZE;
  T sum[OWN];
  team.sync();
  UNROLL for (int k = 0; k < OWN; ++k) sum[k] = lane + k * WARP_SIZE < used ? of[lane + k * WARP_SIZE] : T();
  UNROLL for (int half = OWN / 2; half > 0; half /= 2) {
    UNROLL for (int k = 0; k < half; ++k) {
      if (lane + (k + half) * WARP_SIZE < used) sum[k] += sum[k + half];
    }
  }
  UNROLL for (int half = WARP_SIZE / 2; half > 0; half /= 2) {
    const T other = __shfl_down_sync(ALL_LANES_OF_WARP, sum[0], half);
    if (lane + half < used) sum[0] += other;
  }
  return __shfl_sync(ALL_LANES_OF_WARP, sum[0], 0);
}
#else
template <class T> DEVICE T add_halves(const Team team, T (&of)[CHAINS], const int used) {
  for (int half = CHAINS / 2; half > 0; half /= 2) {  // equal(swap /): unused chains are skipped
    if (half >= used) continue;  // equal(swap >=): no chain is added to another
    team.sync();
    for (int c : team.each(used < 2 * half ? used - half : half)) of[c] += of[c + half];  // equal(swap <): equal where they meet
  }
  team.sync();
  return of[0];
}
#endif
// How many chains n numbers take.
// equal(swap <, constant 1): equal where they meet; equal(constant 2): 0 + 0
DEVICE int chains_of(const int n) { return n < 1 ? 1 : n < CHAINS ? n : CHAINS; }
