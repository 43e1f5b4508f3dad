// conv.cu -- A convolutional layer on observations, with its activation if no normalization follows, on tensor cores: outputs and
// gradients.
//
// The layer is a matrix product of patches (images.cuh) and kernels, both rounded to bfloat16. A team has ROWS patches at once in
// shared memory. Small images are also copied there, in the format of global memory. Rows of outputs are bfloat16, padded with
// zeros to a multiple of 8.
// Constants: those of images.cuh, OUT (output channels), ROWS (a multiple of 16), STAGED_BYTES (limit of images in shared memory),
// ACTIVATED (1: an activation follows), RELU (0: tanh).
// call: kernel arguments (drive/launch.cuh).
#define APPROXIMATE 1
#include "learn/mma/mma.cuh"
#include "learn/layerwise/images.cuh"

constexpr int K = padded(OBS), N = padded(OUT), OUT_STRIDE = (POSITIONS * OUT + 7) / 8 * 8;
constexpr int IMAGES = (TILE + POSITIONS - 2) / POSITIONS + 1, IMAGE = observed_row(ENTRIES);  // per tile, elements of one
constexpr bool STAGED = IMAGES * IMAGE * sizeof(Observed) <= STAGED_BYTES;
constexpr int WIDE = OUT % 8 == 0 ? 8 : 1, PARTS = OUT / WIDE;  // outputs of a patch in one access, accesses per patch

// Entries that are loaded or stored at once.
struct alignas(2 * WIDE) MAY_ALIAS Entries { bf16 of[WIDE]; };

struct Workspace {
  alignas(16) Observed images[STAGED ? IMAGES * IMAGE : 1];
  alignas(16) bf16 patches[ROWS * Matrix<K>::STRIDE];
  alignas(16) bf16 outputs[ROWS * Matrix<N>::STRIDE];  // or the gradients w.r.t. them
  alignas(16) bf16 kernels[N * Matrix<K>::STRIDE];
  float bias[N];
};

// Arguments of a forward pass for acting.
struct Rows {
  int rows;
  const void* obs;      // (rows) of observed.cuh
  const float* center;  // (ENTRIES): means for normalizing observations, or null
  const float* scale;   // (ENTRIES): reciprocal deviations
  const float* weight;  // (OUT, OBS)
  const float* bias;    // (OUT)
  bf16* out;            // (rows, OUT_STRIDE)
};
// Arguments of the passes over a minibatch.
struct Part {
  Learn learn;
  int teams;             // number of teams that divide all tiles in `gradient`
  const float* weight;   // (OUT, OBS)
  const float* bias;     // (OUT)
  bf16* out;             // rows (OUT_STRIDE)
  const bf16* out_grad;  // rows (OUT_STRIDE): gradients w.r.t. `out`
  float* sums;           // (teams, OUT * (OBS + 1)): gradients of the weights, then of the biases
};

DEVICE float activated(const float x) { return ACTIVATED ? policy::activation<RELU>(x) : x; }

// Load entries [d, d + RUN) of an image as bfloat16. Bits become 0 or 1 by integer arithmetic only.
DEVICE void load_run(bf16* to, const Image& image, const int d) {
#if OBSERVED == OBSERVED_BITS
  if constexpr (RUN <= 32 && RUN % 2 == 0) {  // mutant(swap <=): the other way has the same result
    const u32 low = image.at[d / 32], high = image.at[(d + RUN - 1) / 32];
    const u32 bits = (u32)(((u64)high << 32 | low) >> d % 32);
    UNROLL for (int j = 0; j < RUN; j += 2) *(Word*)(to + j) = (bits >> j & 1u) * 0x3f80u | (bits >> (j + 1) & 1u) * 0x3f800000u;
    return;
  }
#endif
  if constexpr (RUN % 2 == 0) {
    UNROLL_TIMES(8) for (int j = 0; j < RUN; j += 2) *(Word*)(to + j) = pair(image.get(d + j), image.get(d + j + 1));
  } else {
    UNROLL_TIMES(8) for (int j = 0; j < RUN; ++j) to[j] = image.get(d + j);
  }
}
// Images of a tile. Small ones are copied once to shared memory. Sync before reading them.
template <class ImageOf> struct TileImages {
  const Observed* staged;
  int first;
  const float* center;
  const float* scale;
  ImageOf images;

  DEVICE TileImages(const Team team, Workspace& work, const int from, const int count, const float* center, const float* scale,
                    ImageOf images)
      : staged(work.images), first(from / POSITIONS), center(center), scale(scale), images(images) {
    if constexpr (STAGED) {
      const int rows = (from + count - 1) / POSITIONS - first + 1;
      for (int i : team.each(rows * IMAGE)) work.images[i] = images(first + i / IMAGE).at[i % IMAGE];
    }
  }
  DEVICE Image operator()(const int row) const {
    if constexpr (STAGED) return {staged, (size_type)(row - first), center, scale};
    else return images(row);
  }
};
// Load patches [from, from + count) as rows of a matrix.
template <class ImageOf>
DEVICE void load_patches(const Team team, const Matrix<K> to, const int from, const int count, const TileImages<ImageOf>& images) {
  for (int i : team.each(count * SPAN)) {
    const int patch = from + i / SPAN, down = i % SPAN;
    load_run(to.row(i / SPAN) + down * RUN, images(patch / POSITIONS),
             corner_of(patch % POSITIONS) + down * IMAGE_WIDTH * CHANNELS);
  }
}
// Clear the patches, so that the padding after their OBS entries is 0.
DEVICE void clear_patches(const Team team, const Matrix<K> patches) {
  for (int i : team.each(ROWS * (K / 2))) patches.two(i / (K / 2), i % (K / 2) * 2) = 0u;
}
// Call visit(k, row, offset in the row, row of the tile, first column) for the parts of outputs [from, from + count) that this
// thread owns.
template <class Visit> DEVICE void each_own_part(const Team team, const int from, const int count, Visit visit) {
  UNROLL for (int k = 0; k < own_count(ROWS * PARTS); ++k) {
    const int i = team.rank + k * TEAM, m = i / PARTS, n = i % PARTS * WIDE, patch = from + m;
    if (m < count) visit(k, patch / POSITIONS, patch % POSITIONS * OUT + n, m, n);
  }
}

// Compute the outputs of patches [from, from + count), and store those of a row at rows(row).
template <class ImageOf, class RowOf>
DEVICE void convolve(const Team team, Workspace& work, const float* weight, const float* bias, const int from, const int count,
                     const TileImages<ImageOf>& images, RowOf rows) {
  const Matrix<K> patches{work.patches}, kernels{work.kernels};
  const Matrix<N> outputs{work.outputs};
  // Load kernels and biases, and clear the patches.
  for (int i : team.each(N * (K / 2))) {
    const int n = i / (K / 2), k = i % (K / 2) * 2;
    const float* const own = weight + n * OBS + k;
    // mutant(swap +, swap &&): patches are 0 there, and no output beyond OUT is read
    kernels.two(n, k) = pair(n < OUT && k < OBS ? own[0] : 0.0f, n < OUT && k + 1 < OBS ? own[1] : 0.0f);
  }
  for (int n : team.each(N)) work.bias[n] = n < OUT ? bias[n] : 0.0f;
  clear_patches(team, patches);
  team.sync();  // zeros are stored before patches overwrite them, and images before they are read
  for (int at = 0; at < count; at += ROWS) {  // mutant(swap <): a tile without patches
    const int left = count - at, here = left < ROWS ? left : ROWS;
    load_patches(team, patches, from + at, here, images);
    team.sync();  // patches, kernels and biases are written before they are read
    product<ROWS, N, K, true>(team, patches, kernels, [&](const int m, const int n, const float c, const float d) INLINED {
      outputs.two(m, n) = pair(activated(c + work.bias[n]), activated(d + work.bias[n + 1]));
    });
    team.sync();  // outputs are written before they are read, and patches are read before they are overwritten
    // Store the outputs with wide accesses.
    each_own_part(team, from + at, here, [&](int, const int row, const int place, const int m, const int n) INLINED {
      *(Entries*)(rows(row) + place) = *(const Entries*)(outputs.row(m) + n);
    });
  }
}

DEVICE void observe_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int from = e * TILE, left = call.rows * POSITIONS - from, count = left < TILE ? left : TILE;
  const TileImages images(team, work, from, count, call.center, call.scale, [&](const int row) INLINED {
    return Image{call.obs, (size_type)row, call.center, call.scale};
  });
  convolve(team, work, call.weight, call.bias, from, count, images,
           [&](const int row) INLINED { return call.out + (size_type)row * OUT_STRIDE; });
}
// Images of a tile of a block.
DEVICE auto images_of(const Learn& learn, const Team team, Workspace& work, const BlockTile<POSITIONS>& own) {
  return TileImages(team, work, own.from, own.count, learn.center, learn.scale, [&](const int row) INLINED {
    return image_of(learn, nullptr, own.of, row);
  });
}
DEVICE void observe_tile_of_block(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile<POSITIONS> own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;  // mutant(constant): it is 0 or 1
  convolve(team, work, call.weight, call.bias, own.from, own.count, images_of(call.learn, team, work, own),
           [&](const int row) INLINED { return call.out + own.of.row(row) * OUT_STRIDE; });
}

// Compute the gradient of tiles first_tile, first_tile + teams, ... of all blocks.
DEVICE void learn_tiles(const Part& call, const Team team, Workspace& work, const int first_tile) {
  if (*call.learn.skip > 0.0f) return;
  const Matrix<K> patches{work.patches};
  const Matrix<N> pre_grad{work.outputs};
  LinearAccumulator<N, K> sums;
  sums.clear();
  clear_patches(team, patches);
  for (int tile = first_tile; tile < call.learn.blocks * BlockTile<POSITIONS>::tiles_of_block(call.learn); tile += call.teams) {
    const BlockTile<POSITIONS> own(call.learn, tile);
    if (own.count <= 0) continue;  // mutant(swap <=): no tile follows
    const auto images = images_of(call.learn, team, work, own);
    for (int at = 0; at < own.count; at += ROWS) {
      const int from = own.from + at, left = own.count - at, count = left < ROWS ? left : ROWS;
      Entries out_grad[own_count(ROWS * PARTS)], out[own_count(ROWS * PARTS)];  // prefetched during the previous product
      each_own_part(team, from, count, [&](const int k, const int row, const int place, int, int) INLINED {
        const size_type there = own.of.row(row) * OUT_STRIDE + place;
        out_grad[k] = *(const Entries*)(call.out_grad + there);
        if constexpr (ACTIVATED) out[k] = *(const Entries*)(call.out + there);
      });
      team.sync();  // patches, gradients and images of the previous product are read, and new images are written
      load_patches(team, patches, from, count, images);
      if (count < ROWS || OUT < N) {  // mutant(swap <): clears nothing
        for (int i : team.each(ROWS * (N / 2))) pre_grad.two(i / (N / 2), i % (N / 2) * 2) = 0u;
        team.sync();  // zeros are stored before gradients overwrite them
      }
      // Gradients before the activation.
      each_own_part(team, from, count, [&](const int k, int, int, const int m, const int n) INLINED {
        Entries grad = out_grad[k];
        UNROLL for (int j = 0; j < WIDE && ACTIVATED; ++j) {
          grad.of[j] = first_of(out_grad[k].of[j].bits) * policy::activation_gradient<RELU>(first_of(out[k].of[j].bits));
        }
        *(Entries*)(pre_grad.row(m) + n) = grad;
      });
      team.sync();  // patches and gradients are written before the product reads them
      sums.template add<ROWS>(team, pre_grad, patches);
    }
  }
  // Store the accumulators.
  float* const to = call.sums + (size_type)first_tile * (OUT * (OBS + 1));
  sums.each(team, [&](const int n, const int k, const float c, const float d) INLINED {
    if (n >= OUT) return;
    if (k < OBS) to[n * OBS + k] = c;
    if (k + 1 < OBS) to[n * OBS + k + 1] = d;
  });
  sums.each_column(team, [&](const int n, const float sum) INLINED {
    if (n < OUT) to[OUT * OBS + n] = sum;
  });
}

#define BUSY_THREADS 1024  // per SM, so that a thread has 64 registers
#include "drive/launch.cuh"
KERNEL(observe, Rows, (call.rows * POSITIONS + TILE - 1) / TILE, observe_tile(call, team, *work, e))
KERNEL(observe_sequences, Part, call.learn.blocks * BlockTile<POSITIONS>::tiles_of_block(call.learn),
       observe_tile_of_block(call, team, *work, e))
KERNEL(gradient, Part, call.teams, learn_tiles(call, team, *work, e))
