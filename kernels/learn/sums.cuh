// sums.cuh -- Even splits of work, and sums in an order that depends on neither team nor device: CHAINS partial sums, of which
// chain c adds numbers c, c + CHAINS, ..., then a tree over the chains.
#pragma once

// Begin of the k-th of `splits` even splits of n: k * n / splits, rounded down, without 64-bit arithmetic. splits < 2^15.
DEVICE int split_begin(const int k, const int n, const int splits) {
  const int each = n / splits;
  return k * each + k * (n - each * splits) / splits;
}

constexpr int CHAINS = 128;  // a power of two

// Return the sum of the first `used` chains, at least one, to all threads of the team. Sync before writing the chains again.
#if defined(__CUDACC__) && TEAM >= 32
// Each warp adds all chains by itself. A team-wide barrier after each level of the tree would take three times as long.
template <class T> DEVICE T add_halves(const Team team, const T (&of)[CHAINS], const int used) {
  constexpr int OWN = CHAINS / WARP_SIZE;
  const int lane = team.rank % WARP_SIZE;
  T sum[OWN];
  team.sync();  // all chains are written before any thread reads them
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
  for (int half = CHAINS / 2; half > 0; half /= 2) {  // mutant(swap /): unused chains are skipped
    if (half >= used) continue;  // mutant(swap >=): no chain is added to another
    team.sync();  // the level above is written before this one reads it
    for (int c : team.each(used < 2 * half ? used - half : half)) of[c] += of[c + half];  // mutant(swap <): equal where they meet
  }
  team.sync();  // the last level is written before all threads read the sum
  return of[0];
}
#endif
// Number of chains that n numbers use.
// mutant(swap <, constant 1): equal where they meet. mutant(constant 2): 0 + 0
DEVICE int chains_of(const int n) { return n < 1 ? 1 : n < CHAINS ? n : CHAINS; }
