// part.cu -- A chain of linear layers of a network with hidden state: outputs of rows, input gradients, and weight gradients.
//
// The chain is the only tower of network.cuh. It reads observations, or rows that another part has written.
// Constants: those of network.cuh and sequences.cuh, OBSERVES (1: reads observations), ADDS (1: adds to the gradients w.r.t. inputs
// that are already there), TOTAL_FLOATS (GRADIENT_FLOATS of the whole network).
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/network.cuh"
#include "learn/layerwise/splits.cuh"

typedef Layer<0, LAYERS - 1> Last;
constexpr int IN_PAD = padded(OBS), OUT_PAD = Last::OUT_PAD;

struct Workspace {
  Tile tile;
  alignas(16) float spare[SPARE_FLOATS > 0 ? SPARE_FLOATS : 1];
};

// Arguments of a forward pass for acting.
struct Rows {
  int rows;
  const void* in;        // rows of observed.cuh, or floats (rows, IN_PAD)
  const float* center;   // (OBS): means for normalizing observations, or null
  const float* scale;    // (OBS): reciprocal deviations
  const float* weights;  // packed weights for forward passes, from this part on
  float* out;            // (rows, OUT_PAD)
};
struct Part {
  Learn learn;
  const float* in;           // rows (IN_PAD), or null: observations
  float* out;                // rows (OUT_PAD): outputs. In the backward pass the gradients w.r.t. them
  float* in_grad;            // rows (IN_PAD): gradients w.r.t. inputs
  const float* activations;  // rows (OUT_PAD): activations, if the part is a single hidden layer
  const float* weights;      // packed weights for forward passes, from this part on
  const float* backwards;    // packed weights for backward passes, from this part on
  float* chunks;             // (splits, TOTAL_FLOATS), from this part on
  float* partial_sums;       // (splits, TOTAL_FLOATS), from this part on
};

// Copy `count` numbers, a multiple of 4. Both arrays are aligned to 16 bytes.
DEVICE void copy_numbers(const Team team, float* to, const float* from, const int count) {
  UNROLL_TIMES(4) for (int i : team.each(count / 4)) {
    Four four;
    four.load(from + 4 * i);
    four.store(to + 4 * i);
  }
}

DEVICE void act_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  if constexpr (OBSERVES) {
    for (int i : team.each(rows * THREADS_PER_ROW)) {
      const int m = i / THREADS_PER_ROW;
      read_observation(work.tile, m, i % THREADS_PER_ROW, observed(call.in, first + m), call.center, call.scale);
    }
  } else {
    copy_numbers(team, work.tile.input(), (const float*)call.in + (size_type)first * IN_PAD, rows * IN_PAD);
  }
  team.sync();  // inputs are written before other threads read them
  find_zeros(work.tile, rows, may_skip(call.weights));
  forward(team, work.tile, rows, call.weights);
  copy_numbers(team, call.out + (size_type)first * OUT_PAD, work.tile.outputs<0, LAYERS - 1>(), rows * OUT_PAD);
}

// Load the inputs of rows [from, from + rows) of a block into a tile.
DEVICE void read_inputs(const Part& call, const Team team, Tile& tile, const Sequences& of, const int from, const int rows) {
  if constexpr (OBSERVES) {
    const Learn& learn = call.learn;
    for (int i : team.each(rows * THREADS_PER_ROW)) {
      const int m = i / THREADS_PER_ROW;
      const RowIndex place = of.place(from + m);
      read_observation(tile, m, i % THREADS_PER_ROW, observed(learn.obs[place.group], place.row), learn.center, learn.scale);
    }
  } else {
    load_rows<IN_PAD>(team, tile.input(), call.in, of, from, rows);
  }
}

// A tile of the rows of a block, which one team computes.
struct BlockTile {
  Sequences of;
  int from, rows;
  DEVICE BlockTile(const Learn& call, const int e, const int tiles) : of(call, e / tiles), from(e % tiles * TILE) {
    const int left = of.rows() - from;
    rows = left < TILE ? left : TILE;
  }
};
DEVICE int tiles_of_block(const Learn& call) { return (steps_of(call) * most_sequences(call) + TILE - 1) / TILE; }

DEVICE void forward_tile(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile own(call.learn, e, tiles_of_block(call.learn));
  if (own.rows <= 0 || *call.learn.skip > 0.0f) return;  // mutant(swap <=): computes nothing for no rows
  read_inputs(call, team, work.tile, own.of, own.from, own.rows);
  team.sync();  // inputs are written before other threads read them
  find_zeros(work.tile, own.rows, may_skip(call.weights));
  forward(team, work.tile, own.rows, call.weights);
  const float* const outputs = work.tile.outputs<0, LAYERS - 1>();
  each_four<OUT_PAD>(team, own.of, own.from, own.rows, [&](size_type there, int here) INLINED {
    Four four;
    four.load(outputs + here);
    four.store(call.out + there);
  });
}

// Compute the gradients w.r.t. the inputs. Only parts of a single layer need them.
DEVICE void inputs_tile(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile own(call.learn, e, tiles_of_block(call.learn));
  if (own.rows <= 0 || *call.learn.skip > 0.0f) return;  // mutant(swap <=): computes nothing for no rows
  float* const out_grad = work.tile.outputs<0, LAYERS - 1>();
  load_rows<OUT_PAD>(team, out_grad, call.out, own.of, own.from, own.rows);
  team.sync();  // output gradients are loaded before the product reads them
  multiply<TILE, OBS, TEAM>(
      team, own.rows, Last::OUT, Entries<false>{out_grad, OUT_PAD}, call.backwards, IN_PAD,
      [&](int m, int n, auto& some) INLINED {
        if constexpr (ADDS) some.load(call.in_grad + own.of.row(own.from + m) * IN_PAD + n);
        else some = {};
      },
      [&](int m, int n, auto& some) INLINED { some.store(call.in_grad + own.of.row(own.from + m) * IN_PAD + n); });
}

// Compute the gradients before the last layer's activation from those after it. They are also stored in memory, where
// `input_gradient` reads them.
DEVICE void read_gradients(const Part& call, const Team team, Tile& tile, const Sequences& of, const int from, const int rows) {
  float* const outputs = tile.outputs<0, LAYERS - 1>();
  each_four<OUT_PAD>(team, of, from, rows, [&](size_type there, int here) INLINED {
    Four four;
    four.load(call.out + there);
    if constexpr (Last::ACTIVATED) {
      Four left;
      left.load(LAYERS > 1 ? outputs + here : call.activations + there);
      UNROLL for (int j = 0; j < 4; ++j) four.of[j] *= activation_gradient<RELU>(left.of[j]);
      if constexpr (!OBSERVES) four.store(call.out + there);
    }
    four.store(outputs + here);
  });
}

// Add the gradients of a block's rows to `sums`. finite: result of may_skip.
DEVICE void learn_chunk(const Part& call, const Team team, Workspace& work, const Sequences& of, Sums sums, const bool finite) {
  for (int from = 0; from < of.rows(); from += TILE) {
    const int left = of.rows() - from, rows = left < TILE ? left : TILE;
    read_inputs(call, team, work.tile, of, from, rows);
    team.sync();  // inputs are written before other threads read them
    find_zeros(work.tile, rows, finite);
    if constexpr (LAYERS > 1) forward(team, work.tile, rows, call.weights);
    read_gradients(call, team, work.tile, of, from, rows);
    team.sync();  // output gradients are written before the backward pass reads them
    sums.first = from == 0;
    sums.last = left <= TILE;
    backward(team, work.tile, work.spare, rows, call.backwards - FORWARD_FLOATS, sums);
    team.sync();  // the tile is read before it is overwritten
  }
}

// Add up the gradients of the blocks of split `split`.
DEVICE void learn_split(const Part& call, const Team team, Workspace& work, const int split) {
  const Learn& learn = call.learn;
  if (*learn.skip > 0.0f) return;
  const bool finite = may_skip(call.weights);
  sum_blocks(learn, team, split, call.chunks, call.partial_sums, [&](const Sequences& of, const Sums& sums) INLINED {
    learn_chunk(call, team, work, of, sums, finite);
  });
}

#include "drive/launch.cuh"
KERNEL(act_rows, Rows, (call.rows + TILE - 1) / TILE, act_tile(call, team, *work, e))
KERNEL(forward_sequences, Part, call.learn.blocks * tiles_of_block(call.learn), forward_tile(call, team, *work, e))
KERNEL(input_gradient, Part, call.learn.blocks * tiles_of_block(call.learn), inputs_tile(call, team, *work, e))
KERNEL(gradient, Part, call.learn.splits, learn_split(call, team, *work, e))
