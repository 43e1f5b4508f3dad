// splits.cuh -- Sum of the weight gradients of the blocks of one split, in ascending order, for one part of a network.
//
// A GPU team computes the gradient of each block in `chunks`, then adds it to `partial_sums`. A single CPU thread adds each number
// to the sums of blocks while it is in a register (exact/splits.cuh). The order of additions is that of minibatches.cuh.
// Constants: TOTAL_FLOATS (GRADIENT_FLOATS of the whole network).
#pragma once
#include "learn/layerwise/sequences.cuh"
#if ALONE
#include "learn/exact/splits.cuh"
#endif

// Call visit(Sequences, Sums), which adds the gradients of a block's sequences, for each block of a split that has sequences.
// chunks: (splits, TOTAL_FLOATS) from the part's gradient on, or for a single CPU thread scratch memory (splits, SCRATCH_FLOATS).
// partial_sums: (splits, TOTAL_FLOATS) from the part's gradient on. If no block has sequences, the gradient is 0.
template <class Visit>
DEVICE void sum_blocks(const Learn& learn, const Team team, const int split, float* chunks, float* partial_sums, Visit visit) {
  float* const sums = partial_sums + (size_type)split * TOTAL_FLOATS;
#if ALONE
  add_chunks<0>(
      learn, split, chunks + (size_type)split * SCRATCH_FLOATS, sums, [&](int b) INLINED { return Sequences(learn, b).count; },
      [&](int b, const Sums& of) INLINED { visit(Sequences(learn, b), of); });
#else
  constexpr int FLOATS = GRADIENT_FLOATS - METRICS;
  float* const chunk = chunks + (size_type)split * TOTAL_FLOATS;
  bool begun = false;
  for (int b = split_begin(split, learn.blocks, learn.splits); b < split_begin(split + 1, learn.blocks, learn.splits); ++b) {
    const Sequences of(learn, b);
    if (of.count == 0) continue;
    visit(of, Sums{chunk});
    for (int segment : team.each(FLOATS / SEGMENT)) {
      Lanes<SEGMENT> sum{}, more;
      if (begun) sum.load(sums + segment * SEGMENT);
      more.load(chunk + segment * SEGMENT);
      sum.add(more);
      sum.store(sums + segment * SEGMENT);
    }
    begun = true;
  }
  if (!begun) for (int i : team.each(FLOATS)) sums[i] = 0.0f;
#endif
}
