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

  // Ids come in ascending order, so that `<` leaves a tie to the lower one; from the place of j on, all move up.
  DEVICE void insert(Distance d, int j) {
    bool before = false;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int k = 0; k < K; ++k) {
      before = before || d < distance[k];
      const Distance other_d = distance[k];
      const int other_j = id[k];
      distance[k] = before ? d : other_d;
      id[k] = before ? j : other_j;
      d = before ? other_d : d;
      j = before ? other_j : j;
    }
  }
};
