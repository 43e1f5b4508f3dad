// nearest.cuh -- the K nearest of many, kept in registers, sorted by (distance, id).
#pragma once

template <class Distance, int K> struct Nearest {
  Distance distance[K];  // ascending; `far` where there is nobody
  int id[K];             // -1 where there is nobody

  DEVICE void clear(Distance far) {
    for (int k = 0; k < K; ++k) { distance[k] = far; id[k] = -1; }
  }
  DEVICE bool full() const { return id[K - 1] >= 0; }
  DEVICE Distance furthest() const { return distance[K - 1]; }

  // Ids come in ascending order, so that `<` leaves a tie to the lower one. No place waits for another: each takes what
  // was before it, the new one, or what it has.
  DEVICE void insert(Distance d, int j) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int k = K - 1; k > 0; --k) {
      const bool before = d < distance[k - 1], here = d < distance[k];
      id[k] = before ? id[k - 1] : here ? j : id[k];
      distance[k] = before ? distance[k - 1] : here ? d : distance[k];
    }
    id[0] = d < distance[0] ? j : id[0];
    distance[0] = d < distance[0] ? d : distance[0];
  }
};
