// conv.cu -- A convolutional layer, and its activation if no normalization follows: outputs of rows, gradients w.r.t. its inputs,
// and weight gradients.
//
// The layer is a linear layer on patches (images.cuh). A patch is a row of the only tower of network.cuh, whose outputs are the
// channels at its position. All sums over patches are in the order of the patches.
// Constants: those of network.cuh and images.cuh, ABREAST (pixels whose gradients a thread computes at once), TOTAL_FLOATS
// (GRADIENT_FLOATS of the whole network).
// call: kernel arguments (drive/launch.cuh).
#include "learn/exact/network.cuh"
#include "learn/layerwise/images.cuh"
#include "learn/layerwise/splits.cuh"

typedef Layer<0, 0> Only;
constexpr int OUT = Only::OUT, OUT_PAD = Only::OUT_PAD, IN_PAD = Only::IN_PAD;
constexpr int OUT_STRIDE = padded(POSITIONS * OUT);  // length of a row of outputs

struct Workspace { Tile tile; };

// Arguments of a forward pass for acting.
struct Rows {
  int rows;
  const void* in;        // (rows) observations of observed.cuh, or floats (rows, IN_STRIDE)
  const float* center;   // (ENTRIES): means for normalizing observations, or null
  const float* scale;    // (ENTRIES): reciprocal deviations
  const float* weights;  // packed weights for forward passes, from this layer on
  float* out;            // (rows, OUT_STRIDE)
};
// Arguments of the passes over a minibatch.
struct Part {
  Learn learn;
  const void* in;          // rows (IN_STRIDE) of floats, or null: observations
  float* out;              // rows (OUT_STRIDE)
  float* out_grad;         // rows (OUT_STRIDE): gradients w.r.t. `out`, which `gradient` replaces by those before an activation
  float* in_grad;          // rows (IN_STRIDE): gradients w.r.t. inputs
  const float* weights;    // packed weights for forward passes, from this layer on
  const float* backwards;  // packed weights for backward passes, from this layer on
  float* chunks;           // (splits, TOTAL_FLOATS), from this layer's part on
  float* partial_sums;     // (splits, TOTAL_FLOATS), from this layer's part on
};

// Threads that divide the numbers of a patch. A team of one thread does not divide them.
// mutant(swap ==): divides them in another way, with the same result
constexpr int READERS = TEAM == 1 ? 1 : OBS, WRITERS = TEAM == 1 ? 1 : OUT, FILLERS = TEAM == 1 ? 1 : OUT_PAD;

// Read patches [from, from + count) of images into a tile.
template <class ImageOf>
DEVICE void read_patches(const Team team, Tile& tile, const int from, const int count, ImageOf images) {
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    const Image image = images(row);
    for (int i : team.each(patches * READERS)) {
      const int m = i / READERS, corner = corner_of(position + m);
      float* const patch = tile.input() + (first + m) * IN_PAD;
      const auto read = [&](const int down, const int j) INLINED {
        patch[down * RUN + j] = image.get(corner + down * IMAGE_WIDTH * CHANNELS + j);
      };
      if constexpr (READERS == 1) {
        for (int down = 0; down < SPAN; ++down) {
          for (int j = 0; j < RUN; ++j) read(down, j);
        }
      } else {
        read(i % READERS / RUN, i % READERS % RUN);
      }
      if (i % READERS == 0) for (int d = OBS; d < IN_PAD; ++d) patch[d] = 0.0f;
    }
  });
}
// Store the outputs of patches [from, from + count) at rows(row).
template <class RowOf> DEVICE void write_outputs(const Team team, Tile& tile, const int from, const int count, RowOf rows) {
  const float* const outputs = tile.outputs<0, 0>();
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    float* const out = rows(row) + position * OUT;
    for (int i : team.each(patches * WRITERS)) {
      const int m = i / WRITERS;
      for (int n = i % WRITERS; n < OUT; n += WRITERS) out[m * OUT + n] = outputs[(first + m) * OUT_PAD + n];
    }
  });
}

DEVICE void act_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int from = e * TILE, left = call.rows * POSITIONS - from, count = left < TILE ? left : TILE;
  read_patches(team, work.tile, from, count, [&](const int row) INLINED {
    return Image{call.in, (size_type)row, call.center, call.scale};
  });
  team.sync();  // patches are written before they are read
  find_zeros(work.tile, count, may_skip(call.weights));
  forward(team, work.tile, count, call.weights);
  write_outputs(team, work.tile, from, count, [&](const int row) INLINED { return call.out + (size_type)row * OUT_STRIDE; });
}

DEVICE void forward_tile(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile<POSITIONS> own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;  // mutant(constant): it is 0 or 1
  read_patches(team, work.tile, own.from, own.count,
               [&](const int row) INLINED { return image_of(call.learn, call.in, own.of, row); });
  team.sync();  // patches are written before they are read
  find_zeros(work.tile, own.count, may_skip(call.weights));
  forward(team, work.tile, own.count, call.weights);
  write_outputs(team, work.tile, own.from, own.count,
                [&](const int row) INLINED { return call.out + own.of.row(row) * OUT_STRIDE; });
}

// ---- gradients w.r.t. inputs ----

// One thread computes LANES channels of ABREAST pixels that are STRIDE apart. The same entries of kernels cover these pixels, at
// neighboring positions. Groups of pixels are numbered row by row of the image. A row has first the groups with x % STRIDE = 0,
// then those with 1, and so on.
constexpr int LANES = SIDE_FLOATS == 1 ? 4 : PAD, VECTORS = (CHANNELS + LANES - 1) / LANES;
constexpr int GROUPS_ACROSS = ((IMAGE_WIDTH + STRIDE - 1) / STRIDE + ABREAST - 1) / ABREAST;
constexpr int GROUPS = IMAGE_HEIGHT * STRIDE * GROUPS_ACROSS;

DEVICE void inputs_tile(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile<GROUPS> own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;  // mutant(constant): it is 0 or 1
  float* const zeros = work.tile.numbers;  // (OUT): zeros, read instead of gradients outside of all positions
  for (int n : team.each(OUT)) zeros[n] = 0.0f;
  team.sync();  // zeros are written before they are read
  for (int i : team.each(own.count * VECTORS)) {
    const int at = own.from + i / VECTORS, row = at / GROUPS, group = at % GROUPS, c = i % VECTORS * LANES;
    const int y = group / (STRIDE * GROUPS_ACROSS), x = group / GROUPS_ACROSS % STRIDE + group % GROUPS_ACROSS * ABREAST * STRIDE;
    const float* const out_grad = call.out_grad + own.of.row(row) * OUT_STRIDE;
    Lanes<LANES> sum[ABREAST] = {}, weights;
    for (int down = y % STRIDE; down < SPAN && down <= y; down += STRIDE) {
      if ((y - down) / STRIDE >= PLACES_DOWN) continue;
      for (int across = x % STRIDE; across < SPAN; across += STRIDE) {
        const int first = (x - across) / STRIDE;  // exact, and negative for positions left of the image
        const float* grad[ABREAST];
        UNROLL for (int j = 0; j < ABREAST; ++j) {
          const bool inside = first + j >= 0 && first + j < PLACES_ACROSS;
          grad[j] = inside ? out_grad + ((y - down) / STRIDE * PLACES_ACROSS + first + j) * OUT : zeros;
        }
        // Lanes past the last channel load the numbers that follow, which exist: the last kernel precedes the packed weights of
        // later layers.
        const float* const from = call.backwards + down * RUN + across * CHANNELS + c;
        for (int n = 0; n < OUT; ++n) {
          weights.load(from + n * IN_PAD);
          UNROLL for (int j = 0; j < ABREAST; ++j) sum[j].add_product(grad[j][n], weights);
        }
      }
    }
    // Store the channels that exist.
    UNROLL for (int j = 0; j < ABREAST; ++j) {
      float found[LANES];
      sum[j].store(found);
      if (x + j * STRIDE >= IMAGE_WIDTH) continue;
      float* const to = call.in_grad + own.of.row(row) * IN_STRIDE + (y * IMAGE_WIDTH + x + j * STRIDE) * CHANNELS + c;
      for (int k = 0; k < LANES && c + k < CHANNELS; ++k) to[k] = found[k];
    }
  }
}

// ---- gradients ----

// Compute the gradients before the activation, if there is one, from those after it. They are also stored in memory.
DEVICE void read_gradients(const Part& call, const Team team, Tile& tile, const Sequences& of, const int from, const int count) {
  float* const out_grad = tile.outputs<0, 0>();
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    const size_type there = of.row(row) * OUT_STRIDE + position * OUT;
    for (int i : team.each(patches * FILLERS)) {
      const int m = i / FILLERS;
      for (int n = i % FILLERS; n < OUT_PAD; n += FILLERS) {
        float grad = 0.0f;
        if (n < OUT) {
          const size_type at = there + m * OUT + n;
          grad = call.out_grad[at];
          if constexpr (Only::ACTIVATED) {
            grad *= activation_gradient<RELU>(call.out[at]);
            call.out_grad[at] = grad;
          }
        }
        out_grad[(first + m) * OUT_PAD + n] = grad;
      }
    }
  });
}

// Add up the gradients of the blocks of split `split`.
DEVICE void learn_split(const Part& call, const Team team, Workspace& work, const int split) {
  const Learn& learn = call.learn;
  if (*learn.skip > 0.0f) return;  // mutant(constant): it is 0 or 1
  const bool finite = may_skip(call.weights);
  sum_blocks(learn, team, split, call.chunks, call.partial_sums, [&](const Sequences& of, Sums sums) INLINED {
    const int patches = of.rows() * POSITIONS;
    for (int from = 0; from < patches; from += TILE) {
      const int left = patches - from, count = left < TILE ? left : TILE;
      read_patches(team, work.tile, from, count, [&](const int row) INLINED { return image_of(learn, call.in, of, row); });
      read_gradients(call, team, work.tile, of, from, count);
      team.sync();  // patches and gradients are written before they are read
      find_zeros(work.tile, count, finite);
      sums.first = from == 0;
      sums.last = left <= TILE;
      backward(team, work.tile, nullptr, count, nullptr, sums);
      team.sync();  // the tile is read before it is overwritten
    }
  });
}

#include "drive/launch.cuh"
KERNEL(act_rows, Rows, (call.rows * POSITIONS + TILE - 1) / TILE, act_tile(call, team, *work, e))
KERNEL(forward_sequences, Part, call.learn.blocks * BlockTile<POSITIONS>::tiles_of_block(call.learn),
       forward_tile(call, team, *work, e))
KERNEL(input_gradient, Part, call.learn.blocks * BlockTile<GROUPS>::tiles_of_block(call.learn), inputs_tile(call, team, *work, e))
KERNEL(gradient, Part, call.learn.splits, learn_split(call, team, *work, e))
