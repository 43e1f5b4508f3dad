// warps.cuh -- the warps of a team, and sums of what its members have, in one order.
#pragma once

#ifdef __CUDACC__
constexpr int WARPS = TEAM < WARP_SIZE ? 1 : TEAM / WARP_SIZE;

// The sums of what the members have, by the leader: visit(k, sum). `memory`: N * WARPS floats that nobody uses.
template <int N, class Visit> DEVICE void sum_members(const Team team, const float (&mine)[N], float* memory, Visit visit) {
  UNROLL for (int k = 0; k < N; ++k) {
    float sum = mine[k];
    UNROLL for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, offset);
    if (team.rank % WARP_SIZE == 0) memory[k * WARPS + team.rank / WARP_SIZE] = sum;
  }
  team.sync();
  for (int k : team.each(N)) {
    float sum = 0.0f;
    UNROLL for (int warp = 0; warp < WARPS; ++warp) sum += memory[k * WARPS + warp];
    visit(k, sum);
  }
}
#else
constexpr int WARPS = TEAM;  // of one member each

template <int N, class Visit> DEVICE void sum_members(const Team team, const float (&mine)[N], float* memory, Visit visit) {
  for (int k = 0; k < N; ++k) memory[k * WARPS + team.rank] = mine[k];
  team.sync();
  for (int k : team.each(N)) {
    float sum = memory[k * WARPS];
    for (int warp = 1; warp < WARPS; ++warp) sum += memory[k * WARPS + warp];
    visit(k, sum);
  }
}
#endif
