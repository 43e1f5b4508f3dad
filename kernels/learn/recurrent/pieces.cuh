// pieces.cuh -- Sums over the blocks of one piece of a minibatch, in order. Constants: TOTAL_FLOATS (GRADIENT_FLOATS of the whole
// network).
#pragma once
#include "learn/recurrent/sequences.cuh"
#if ALONE
#include "learn/exact/pieces.cuh"
#endif

// Call visit(the sequences of a block, Sums), which adds their gradients, for each block of a piece that has any. chunks, partials:
// (pieces, TOTAL_FLOATS), from a part's own numbers on.
template <class Visit>
DEVICE void sum_blocks(const Learn& learn, const Team team, const int piece, float* chunks, float* partials, Visit visit) {
  float* const sums = partials + (size_type)piece * TOTAL_FLOATS;
#if ALONE
  add_chunks<0>(
      learn, piece, chunks + (size_type)piece * SCRATCH_FLOATS, sums, [&](int b) INLINED { return Sequences(learn, b).count; },
      [&](int b, const Sums& of) INLINED { visit(Sequences(learn, b), of); });
#else
  constexpr int FLOATS = GRADIENT_FLOATS - METRICS;
  float* const chunk = chunks + (size_type)piece * TOTAL_FLOATS;
  bool begun = false;
  for (int b = share(piece, learn.blocks, learn.pieces); b < share(piece + 1, learn.blocks, learn.pieces); ++b) {
    const Sequences of(learn, b);
    if (of.count == 0) continue;
    visit(of, Sums{chunk});
    for (int strip : team.each(FLOATS / STRIP)) {
      Lanes<STRIP> sum{}, more;
      if (begun) sum.load(sums + strip * STRIP);
      more.load(chunk + strip * STRIP);
      sum.add(more);
      sum.store(sums + strip * STRIP);
    }
    begun = true;
  }
  if (!begun) for (int i : team.each(FLOATS)) sums[i] = 0.0f;
#endif
}
