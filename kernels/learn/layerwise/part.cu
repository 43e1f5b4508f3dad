// part.cu -- Consecutive linear layers (a part) of a network that is computed layer by layer, in exact float32.
//
// Networks with a hidden state, convolutions, layer normalization or a central critic consist of parts, with other kernels between
// them. This file is compiled once per part. The part's layers are the only tower of network.cuh. A part reads observations
// (OBSERVES 1), or rows that another kernel has written. LinearPart in cupydrive/algorithms/kernels/layers.py launches the kernels:
//   act_rows            acting: outputs of `rows` rows, one team per tile of TILE rows
//   forward_sequences   learning: outputs of a minibatch, one team per tile of a block's rows
//   gradient            learning: weight gradients, one team per split of neighboring blocks
//   input_gradient      learning: gradients w.r.t. the inputs, one team per tile. For parts of a single layer, after `gradient`
//
// Rows of a minibatch have the layout of sequences.cuh, (S, Q, IN_PAD) or (S, Q, OUT_PAD). `gradient` recomputes the hidden layers
// of its rows in the tile, because only the last layer's outputs are in global memory.
//
// Order of sums. Floating-point addition is not associative. Each number of a weight gradient is therefore added in a fixed order,
// so that results are bitwise equal on every device: first the rows of a block in ascending order, then the blocks (splits.cuh).
//
// Constants: those of network.cuh and sequences.cuh, OBSERVES, ADDS (1: `input_gradient` adds to the existing values of `in_grad`),
// TOTAL_FLOATS (GRADIENT_FLOATS of the whole network).
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/network.cuh"
#include "learn/layerwise/splits.cuh"

typedef Layer<0, LAYERS - 1> Last;
constexpr int IN_PAD = padded(OBS), OUT_PAD = Last::OUT_PAD;

// On-chip memory of a team: a tile of TILE rows, and the second buffer of the backward pass (network.cuh).
struct Workspace {
  Tile tile;
  alignas(16) float spare[SPARE_FLOATS > 0 ? SPARE_FLOATS : 1];
};

// Arguments of act_rows. All arrays are in global memory.
struct Rows {
  int rows;
  const void* in;        // rows of observed.cuh, or floats (rows, IN_PAD)
  const float* center;   // (OBS): means for normalizing observations, or null
  const float* scale;    // (OBS): reciprocal deviations
  const float* weights;  // packed weights for forward passes, from this part's first on
  float* out;            // (rows, OUT_PAD)
};
// Arguments of the kernels of learning. All arrays are in global memory. Arrays of weights and gradients begin at this part's first
// entry.
struct Part {
  Learn learn;
  const float* in;           // (S, Q, IN_PAD): inputs, or null if the part reads observations
  float* out;                // (S, Q, OUT_PAD): outputs. In the backward pass the gradients w.r.t. them
  float* in_grad;            // (S, Q, IN_PAD): gradients w.r.t. inputs. Only input_gradient uses it
  const float* activations;  // (S, Q, OUT_PAD): outputs of the forward pass. Only a part of a single hidden layer reads them
  const float* weights;      // packed weights for forward passes
  const float* backwards;    // packed weights for backward passes
  float* chunks;             // (splits, TOTAL_FLOATS): gradient of one block per split. If a team is one CPU thread: scratch memory
                             // (splits, SCRATCH_FLOATS) of splits.cuh, which all parts share
  float* partial_sums;       // (splits, TOTAL_FLOATS): gradient of each split
};

// Copy `count` floats, a multiple of 4, by the whole team. Both arrays are aligned to 16 bytes.
DEVICE void copy_numbers(const Team team, float* to, const float* from, const int count) {
  UNROLL_TIMES(4) for (int i : team.each(count / 4)) {
    Four four;
    four.load(from + 4 * i);
    four.store(to + 4 * i);
  }
}

// Compute the outputs of tile e for acting. Rows are consecutive.
DEVICE void act_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int first = e * TILE, left = call.rows - first, rows = left < TILE ? left : TILE;
  // Load the inputs.
  if constexpr (OBSERVES) {
    for (int i : team.each(rows * THREADS_PER_ROW)) {
      const int m = i / THREADS_PER_ROW;
      read_observation(work.tile, m, i % THREADS_PER_ROW, observed(call.in, first + m), call.center, call.scale);
    }
  } else {
    copy_numbers(team, work.tile.input(), (const float*)call.in + (size_type)first * IN_PAD, rows * IN_PAD);
  }
  team.sync();  // inputs are written before other threads read them
  // Compute the layers, and store the outputs.
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

// Tile e % tiles of block e / tiles, which one team computes. It may have no rows (rows <= 0) if the block has fewer rows than
// the maximum.
struct BlockTile {
  Sequences of;
  int from, rows;
  DEVICE BlockTile(const Learn& call, const int e, const int tiles) : of(call, e / tiles), from(e % tiles * TILE) {
    const int left = of.rows() - from;
    rows = left < TILE ? left : TILE;
  }
};
// Number of tiles of the maximum number of rows of a block.
DEVICE int tiles_of_block(const Learn& call) { return (steps_of(call) * most_sequences(call) + TILE - 1) / TILE; }

// Compute the outputs of a tile of a minibatch, and store them in `out`.
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

// Compute the gradients w.r.t. the inputs of a part of a single layer: `out` times the transposed weights. `gradient` runs first,
// because it converts `out` to gradients before the activation, if the layer has one.
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

// Load the gradients w.r.t. the outputs into the tile, and convert them to gradients before the last layer's activation. Unless the
// part reads observations, also store them in `out`, where `input_gradient` reads them. They replace the tile's outputs.
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

// Add the weight gradients of a block's rows to `sums`, tile by tile in ascending order. finite: result of may_skip.
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

// Add up the weight gradients of the blocks of split `split`, and store the result in its row of `partial_sums`.
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
