// warps.cuh -- The warps of a team, and sums over its threads in a fixed order.
#pragma once

#ifdef __CUDACC__
constexpr int WARPS = TEAM < WARP_SIZE ? 1 : TEAM / WARP_SIZE, WARP_LANES = WARP_SIZE;
DEVICE void sync_warp() { __syncwarp(); }
#else
constexpr int WARPS = TEAM, WARP_LANES = 1;
DEVICE void sync_warp() {}
#endif

// Add up `mine` over the team, and call visit(k, sum). `memory`: N * WARPS floats that are not in use.
template <int N, class Visit> DEVICE void sum_members(const Team team, const float (&mine)[N], float* memory, Visit visit) {
  UNROLL for (int k = 0; k < N; ++k) {
    float sum = mine[k];
#ifdef __CUDACC__
    UNROLL for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, offset);
#endif
    if (team.rank % WARP_LANES == 0) memory[k * WARPS + team.rank / WARP_LANES] = sum;
  }
  team.sync();  // the warps' sums are written before they are read
  for (int k : team.each(N)) {
    float sum = 0.0f;
    UNROLL for (int warp = 0; warp < WARPS; ++warp) sum += memory[k * WARPS + warp];
    visit(k, sum);
  }
}
