// pieces.cuh -- sums over the blocks of one piece of a minibatch, in their order.
#pragma once
#include "learn/recurrent/sequences.cuh"

// visit(the sequences of a block) for the blocks of a piece that have any: it fills `chunk`, FLOATS numbers, whose sum over blocks is
// left in `sums`. STRIP columns at once, all of which `visit` has written.
template <int FLOATS, int STRIP, class Visit>
DEVICE void sum_blocks(const Learn& learn, const Team team, const int piece, const float* chunk, float* sums, Visit visit) {
  bool begun = false;
  for (int b = share(piece, learn.blocks, learn.pieces); b < share(piece + 1, learn.blocks, learn.pieces); ++b) {
    const Sequences of(learn, b);
    if (of.count == 0) continue;
    visit(of);
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
}
