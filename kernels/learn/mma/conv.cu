// conv.cu -- A convolutional layer on observations with its activation, on tensor cores: outputs and gradients.
//
// The layer is a matrix product of patches (images.cuh) and kernels, both rounded to bfloat16. A team has ROWS patches at once in
// shared memory. Small images are also copied there, in the format of global memory. Rows of outputs are bfloat16, padded with
// zeros to a multiple of 8.
// Constants: those of images.cuh, OUT (output channels), ROWS (a multiple of 16), STAGED_BYTES (limit of images in shared memory),
// NORMALIZED (1: a layer normalization over the channels of each patch precedes the activation), RELU (0: tanh).
// call: kernel arguments (drive/launch.cuh).
#define APPROXIMATE 1
#include "learn/mma/mma.cuh"
#include "learn/mma/norm.cuh"
#include "learn/layerwise/images.cuh"

constexpr int K = padded(OBS), N = padded(OUT), OUT_STRIDE = (POSITIONS * OUT + 7) / 8 * 8;
constexpr int IMAGES = (TILE + POSITIONS - 2) / POSITIONS + 1, IMAGE = observed_row(ENTRIES);  // per tile, elements of one
// mutant(swap <=): equal where they meet
constexpr bool STAGED = IMAGES * IMAGE * sizeof(Observed) <= STAGED_BYTES;
constexpr int WIDE = OUT % 8 == 0 ? 8 : 1, PARTS = OUT / WIDE;  // outputs of a patch in one access, accesses per patch
constexpr int SUMS = OUT * (OBS + 1 + 2 * NORMALIZED);          // numbers of a team's gradient
// A quad of lanes normalizes a patch.
typedef NormRow<OUT, N, QUAD> PatchNorm;
// mutant(swap -): a turn without patches
constexpr int PATCHES_AT_ONCE = TEAM / QUAD, OWN_PATCHES = (ROWS + PATCHES_AT_ONCE - 1) / PATCHES_AT_ONCE;

// Entries that are loaded or stored at once.
struct alignas(2 * WIDE) MAY_ALIAS Entries { bf16 of[WIDE]; };

struct Workspace {
  alignas(16) Observed images[STAGED ? IMAGES * IMAGE : 1];
  alignas(16) bf16 patches[ROWS * Matrix<K>::STRIDE];
  alignas(16) bf16 outputs[ROWS * Matrix<N>::STRIDE];  // or the gradients w.r.t. them
  alignas(16) bf16 kernels[N * Matrix<K>::STRIDE];
  float bias[N];
  // Of the normalization; sums of each warp are gradients w.r.t. gains and biases.
  float gain[NORMALIZED ? N : 1], norm_bias[NORMALIZED ? N : 1], norm_sums[NORMALIZED ? 2 * WARPS * N : 1];
};
// Outputs of all rows.
struct Outputs {
  bf16* out;               // rows (OUT_STRIDE): activations
  const float* gain;       // (OUT): of the normalization
  const float* norm_bias;  // (OUT)
  bf16* normalized;        // rows (OUT_STRIDE) before gains and biases, or null for acting
  float* scales;           // rows (POSITIONS): reciprocal standard deviations, or null
};

// Arguments of a forward pass for acting.
struct Rows {
  int rows;
  const void* obs;      // (rows) of observed.cuh
  const float* center;  // (ENTRIES): means for normalizing observations, or null
  const float* scale;   // (ENTRIES): reciprocal deviations
  const float* weight;  // (OUT, OBS)
  const float* bias;    // (OUT)
  Outputs to;
};
// Arguments of the passes over a minibatch.
struct Part {
  Learn learn;
  int teams;             // number of teams that divide all tiles in `gradient`
  const float* weight;   // (OUT, OBS)
  const float* bias;     // (OUT)
  Outputs to;
  const bf16* out_grad;  // rows (OUT_STRIDE): gradients w.r.t. the activations
  float* sums;           // (teams, SUMS): gradients of the weights, the biases, and of gains and biases of the normalization
};

// Load entries [d, d + RUN) of an image as bfloat16.
DEVICE void load_run(bf16* to, const Image& image, const int d) {
#if OBSERVED == OBSERVED_BITS
  if constexpr (RUN <= 32 && RUN % 2 == 0) {  // mutant(swap <=): the other way has the same result
    // mutant(swap -): a word after the run's is not used, except by runs of 32
    const u32 low = image.at[d / 32], high = image.at[(d + RUN - 1) / 32];
    const u32 bits = (u32)(((u64)high << 32 | low) >> d % 32);
    UNROLL for (int j = 0; j < RUN; j += 2) *(Word*)(to + j) = pair_of_bits(bits >> j);
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

// Call visit(k, m): patch m of a tile is the k-th one of this thread's quad. All lanes of a warp have a patch, or none has.
template <class Visit> DEVICE void each_quad_patch(const Team team, Visit visit) {
  UNROLL for (int k = 0; k < OWN_PATCHES; ++k) {
    const int m = team.rank / QUAD + k * PATCHES_AT_ONCE;  // mutant(swap /): a quad of a CPU is one thread
    // mutant(swap ||, swap ==, constant): rows are a multiple of a CPU's threads
    if (ROWS % PATCHES_AT_ONCE == 0 || m < ROWS) visit(k, m);
  }
}
// Channels n and n + 1 of a patch in global memory, of which those beyond OUT are 0.
DEVICE u32 load_channels(const bf16* channels, const int n) {
  // mutant(swap <): gains beyond OUT are 0
  if constexpr (OUT % 2 == 0) return n < OUT ? *(const Word*)(channels + n) : 0u;
  else return (n < OUT ? channels[n].bits : 0u) | (n + 1 < OUT ? (u32)channels[n + 1].bits << 16 : 0u);
}
DEVICE void store_channels(bf16* channels, const int n, const u32 two) {
  if constexpr (OUT % 2 == 0) {
    if (n < OUT) *(Word*)(channels + n) = two;
  } else {
    if (n < OUT) channels[n] = first_of(two);
    if (n + 1 < OUT) channels[n + 1] = second_of(two);
  }
}

// Load gains and biases of the normalization, and pad them with 0.
DEVICE void load_norm(const Team team, Workspace& work, const Outputs& to) {
  for (int n : team.each(NORMALIZED ? N : 0)) {
    // mutant(swap <): what is beyond OUT is multiplied by 0, or never read
    work.gain[n] = n < OUT ? to.gain[n] : 0.0f;
    work.norm_bias[n] = n < OUT ? to.norm_bias[n] : 0.0f;
  }
}
// Load the weights of the layer and of its normalization.
DEVICE void load_layer(const Team team, Workspace& work, const float* weight, const float* bias, const Outputs& to) {
  const Matrix<K> kernels{work.kernels};
  for (int i : team.each(N * (K / 2))) {
    const int n = i / (K / 2), k = i % (K / 2) * 2;
    const float* const own = weight + n * OBS + k;
    // mutant(swap +, swap &&): patches are 0 there, and no output beyond OUT is read
    kernels.two(n, k) = pair(n < OUT && k < OBS ? own[0] : 0.0f, n < OUT && k + 1 < OBS ? own[1] : 0.0f);
  }
  for (int n : team.each(N)) work.bias[n] = n < OUT ? bias[n] : 0.0f;
  load_norm(team, work, to);
}

// Compute the outputs of patches [from, from + count). begin(): called once, after the first patches are loaded and before
// weights are read. If it returns false, no outputs are computed. row_of(row): a row's index in memory.
template <class ImageOf, class Begin, class RowOf>
DEVICE void convolve(const Team team, Workspace& work, const Outputs& to, const int from, const int count,
                     const TileImages<ImageOf>& images, Begin begin, RowOf row_of) {
  const Matrix<K> patches{work.patches}, kernels{work.kernels};
  const Matrix<N> outputs{work.outputs};
  clear_patches(team, patches);
  team.sync();  // zeros are stored before patches overwrite them, and images before they are read
  for (int at = 0; at < count; at += ROWS) {  // mutant(swap <): a tile without patches
    const int left = count - at, here = left < ROWS ? left : ROWS;  // mutant(swap <): equal where they meet
    load_patches(team, patches, from + at, here, images);
    if (at == 0 && !begin()) return;
    team.sync();  // patches, kernels and biases are written before they are read
    product<ROWS, N, K, true>(team, patches, kernels, [&](const int m, const int n, const float c, const float d) INLINED {
      const float first = c + work.bias[n], second = d + work.bias[n + 1];
      if constexpr (NORMALIZED) outputs.two(m, n) = pair(first, second);
      else outputs.two(m, n) = pair(policy::activation<RELU>(first), policy::activation<RELU>(second));
    });
    team.sync();  // outputs are written before they are read, and patches are read before they are overwritten
    if constexpr (NORMALIZED) {
      each_quad_patch(team, [&](int, const int m) INLINED {
        PatchNorm own;
        own.each(team.rank, [&](int, int n, float(&two)[2]) INLINED {
          two[0] = first_of(outputs.two(m, n));
          two[1] = second_of(outputs.two(m, n));
        });
        const float scale = own.normalize(team.rank);
        const int patch = from + at + m, position = patch % POSITIONS;
        const bool stored = to.normalized != nullptr && m < here;
        const size_type row = stored ? row_of(patch / POSITIONS) : 0;
        if (stored) to.scales[row * POSITIONS + position] = scale;  // all lanes store the same
        own.each(team.rank, [&](int, int n, const float(&two)[2]) INLINED {
          float out[2];
          UNROLL for (int h = 0; h < 2; ++h) {
            out[h] = policy::activation<RELU>(math::fma(two[h], work.gain[n + h], work.norm_bias[n + h]));
          }
          if (stored) store_channels(to.normalized + row * OUT_STRIDE + position * OUT, n, pair(two[0], two[1]));
          outputs.two(m, n) = pair(out[0], out[1]);
        });
      });
      team.sync();  // outputs are written before they are read
    }
    // Store the outputs with wide accesses.
    each_own_part(team, from + at, here, [&](int, const int row, const int place, const int m, const int n) INLINED {
      *(Entries*)(to.out + row_of(row) * OUT_STRIDE + place) = *(const Entries*)(outputs.row(m) + n);
    });
  }
}

DEVICE void observe_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int from = e * TILE, left = call.rows * POSITIONS - from;
  const int count = left < TILE ? left : TILE;  // mutant(swap <): equal where they meet
  const TileImages images(team, work, from, count, call.center, call.scale, [&](const int row) INLINED {
    return Image{call.obs, (size_type)row, call.center, call.scale};
  });
  load_layer(team, work, call.weight, call.bias, call.to);
  convolve(team, work, call.to, from, count, images, []() INLINED { return true; },
           [](const int row) INLINED { return (size_type)row; });
}
// Images of a tile of a block.
DEVICE auto images_of(const Learn& learn, const Team team, Workspace& work, const BlockTile<POSITIONS>& own) {
  return TileImages(team, work, own.from, own.count, learn.center, learn.scale, [&](const int row) INLINED {
    return image_of(learn, nullptr, own.of, row);
  });
}
DEVICE void observe_tile_of_block(const Part& call, const Team team, Workspace& work, const int e) {
  const BlockTile<POSITIONS> own(call.learn, e);
  if (own.count <= 0) {  // mutant(swap <=): no patch follows
    await_previous();  // mutant(dropped statement): a CPU launch has ended by then
    return;
  }
  // The first patches are loaded before the previous launch ends, which writes neither observations nor their order.
  const auto begin = [&]() INLINED {
    await_previous();
    load_layer(team, work, call.weight, call.bias, call.to);
    return !(*call.learn.skip > 0.0f);  // mutant(constant): it is 0 or 1
  };
  convolve(team, work, call.to, own.from, own.count, images_of(call.learn, team, work, own), begin,
           [&](const int row) INLINED { return (size_type)own.of.row(row); });
}

// The backward pass of the normalization. A thread has the same channels of all patches of its quad.
struct NormGradient {
  float gains[PatchNorm::OWN][2], biases[PatchNorm::OWN][2];
  // Prefetched numbers of the quad's patches, 0 where there is none.
  float grads[OWN_PATCHES][PatchNorm::OWN][2], rows[OWN_PATCHES][PatchNorm::OWN][2], scales[OWN_PATCHES];

  DEVICE void clear() {
    UNROLL for (int j = 0; j < PatchNorm::OWN; ++j) gains[j][0] = gains[j][1] = biases[j][0] = biases[j][1] = 0.0f;
  }
  // Call visit(j, n) for the thread's pairs of channels.
  template <class Visit> static DEVICE void each_pair(const Team team, Visit visit) {
    PatchNorm pairs;
    pairs.each(team.rank, [&](int j, int n, float(&)[2]) INLINED { visit(j, n); });
  }
  // Load patches [from, from + count). row_of(row): a row's index in memory.
  template <class RowOf> DEVICE void load(const Team team, const Part& call, const int from, const int count, RowOf row_of) {
    each_quad_patch(team, [&](const int k, const int m) INLINED {
      const int patch = from + m, position = patch % POSITIONS;
      const bool there = m < count;
      const size_type row = there ? row_of(patch / POSITIONS) : 0, at = row * OUT_STRIDE + position * OUT;
      scales[k] = there ? call.to.scales[row * POSITIONS + position] : 0.0f;
      each_pair(team, [&](int j, int n) INLINED {
        const u32 grad = there ? load_channels(call.out_grad + at, n) : 0u;
        const u32 y = there ? load_channels(call.to.normalized + at, n) : 0u;
        grads[k][j][0] = first_of(grad);
        grads[k][j][1] = second_of(grad);
        rows[k][j][0] = first_of(y);
        rows[k][j][1] = second_of(y);
      });
    });
  }
  // Write the gradients before the normalization.
  DEVICE void differentiate(const Team team, const Workspace& work, const Matrix<N> pre_grad) {
    each_quad_patch(team, [&](const int k, const int m) INLINED {
      PatchNorm grad, with;  // gradients w.r.t. normalized numbers, and their products with these
      grad.each(team.rank, [&](int j, int n, float(&two)[2]) INLINED {
        UNROLL for (int h = 0; h < 2; ++h) {
          const float y = rows[k][j][h], gain = work.gain[n + h];
          const float out = policy::activation<RELU>(math::fma(y, gain, work.norm_bias[n + h]));
          const float scaled = grads[k][j][h] * policy::activation_gradient<RELU>(out);
          gains[j][h] = math::fma(scaled, y, gains[j][h]);
          biases[j][h] += scaled;
          two[h] = scaled * gain;
          with.of[j][h] = two[h] * y;
        }
      });
      const auto add = [](int, const float(&two)[2]) INLINED { return two[0] + two[1]; };
      const float mean = grad.sum(team.rank, add) * (1.0f / OUT), common = with.sum(team.rank, add) * (1.0f / OUT);
      grad.each(team.rank, [&](int j, int n, const float(&two)[2]) INLINED {
        float found[2];
        UNROLL for (int h = 0; h < 2; ++h) {
          found[h] = n + h < OUT ? scales[k] * (two[h] - mean - rows[k][j][h] * common) : 0.0f;
        }
        pre_grad.two(m, n) = pair(found[0], found[1]);
      });
    });
  }
  // Store the gradients w.r.t. gains, then biases.
  DEVICE void store(const Team team, float* memory, float* to) const {
    const int warp = team.rank / WARP_LANES;
    each_pair(team, [&](int j, int n) INLINED {
      UNROLL for (int h = 0; h < 2; ++h) {
        float gain = gains[j][h], bias = biases[j][h];
#ifdef __CUDACC__
        UNROLL for (int offset = QUAD; offset < WARP_SIZE; offset *= 2) {
          gain += __shfl_xor_sync(ALL_LANES_OF_WARP, gain, offset);
          bias += __shfl_xor_sync(ALL_LANES_OF_WARP, bias, offset);
        }
#endif
        if (team.rank % WARP_LANES >= QUAD) continue;  // mutant(swap >=): a CPU has one lane
        memory[warp * N + n + h] = gain;
        memory[(WARPS + warp) * N + n + h] = bias;
      }
    });
    team.sync();  // the warps' sums are written before they are read
    for (int i : team.each(2 * OUT)) {
      float sum = 0.0f;
      for (int warp = 0; warp < WARPS; ++warp) sum += memory[(i / OUT * WARPS + warp) * N + i % OUT];
      to[i] = sum;
    }
  }
};

// Compute the gradient of tiles first_tile, first_tile + teams, ... of all blocks.
DEVICE void learn_tiles(const Part& call, const Team team, Workspace& work, const int first_tile) {
  if (*call.learn.skip > 0.0f) return;
  const Matrix<K> patches{work.patches};
  const Matrix<N> pre_grad{work.outputs};
  LinearAccumulator<N, K> sums;
  sums.clear();
  NormGradient norm;
  if constexpr (NORMALIZED) {
    norm.clear();
    load_norm(team, work, call.to);
  }
  clear_patches(team, patches);
  for (int tile = first_tile; tile < call.learn.blocks * BlockTile<POSITIONS>::tiles_of_block(call.learn); tile += call.teams) {
    const BlockTile<POSITIONS> own(call.learn, tile);
    if (own.count <= 0) continue;  // mutant(swap <=): no tile follows
    const auto images = images_of(call.learn, team, work, own);
    for (int at = 0; at < own.count; at += ROWS) {
      const int from = own.from + at, left = own.count - at, count = left < ROWS ? left : ROWS;
      Entries out_grad[own_count(ROWS * PARTS)], out[own_count(ROWS * PARTS)];  // prefetched during the previous product
      const auto row_of = [&](const int row) INLINED { return (size_type)own.of.row(row); };
      if constexpr (NORMALIZED) norm.load(team, call, from, count, row_of);
      else each_own_part(team, from, count, [&](const int k, const int row, const int place, int, int) INLINED {
        const size_type there = own.of.row(row) * OUT_STRIDE + place;
        out_grad[k] = *(const Entries*)(call.out_grad + there);
        out[k] = *(const Entries*)(call.to.out + there);
      });
      team.sync();  // patches, gradients and images of the previous product are read, and new images are written
      load_patches(team, patches, from, count, images);
      // Gradients before the activation, or before the normalization.
      if constexpr (NORMALIZED) {
        norm.differentiate(team, work, pre_grad);
      } else {
        if (count < ROWS || OUT < N) {  // mutant(swap <): clears nothing
          for (int i : team.each(ROWS * (N / 2))) pre_grad.two(i / (N / 2), i % (N / 2) * 2) = 0u;
          team.sync();  // zeros are stored before gradients overwrite them
        }
        each_own_part(team, from, count, [&](const int k, int, int, const int m, const int n) INLINED {
          Entries grad;
          UNROLL for (int j = 0; j < WIDE; ++j) {
            grad.of[j] = first_of(out_grad[k].of[j].bits) * policy::activation_gradient<RELU>(first_of(out[k].of[j].bits));
          }
          *(Entries*)(pre_grad.row(m) + n) = grad;
        });
      }
      team.sync();  // patches and gradients are written before the product reads them
      sums.template add<ROWS>(team, pre_grad, patches);
    }
  }
  // Store the accumulators.
  float* const to = call.sums + (size_type)first_tile * SUMS;
  sums.each(team, [&](const int n, const int k, const float c, const float d) INLINED {
    if (n >= OUT) return;
    if (k < OBS) to[n * OBS + k] = c;
    if (k + 1 < OBS) to[n * OBS + k + 1] = d;
  });
  sums.each_column(team, [&](const int n, const float sum) INLINED {
    if (n < OUT) to[OUT * OBS + n] = sum;
  });
  if constexpr (NORMALIZED) norm.store(team, work.norm_sums, to + OUT * (OBS + 1));
}

#define BUSY_THREADS 1024  // per SM, so that a thread has 64 registers
#include "drive/launch.cuh"
KERNEL(observe, Rows, (call.rows * POSITIONS + TILE - 1) / TILE, observe_tile(call, team, *work, e))
KERNEL_AHEAD(observe_sequences, Part, call.learn.blocks * BlockTile<POSITIONS>::tiles_of_block(call.learn),
             observe_tile_of_block(call, team, *work, e))
KERNEL(gradient, Part, call.teams, learn_tiles(call, team, *work, e))
