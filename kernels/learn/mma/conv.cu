// conv.cu -- a layer of convolutions of observations on tensor cores, with its activation: outputs, and gradients.
//
// The layer is a product of patches (images.cuh) and kernels, both rounded to bfloat16. A team has ROWS patches at once in shared
// memory. Rows of outputs are bfloat16, padded with zeros to a multiple of 8.
// Constants: those of images.cuh; OUT (channels that it writes), ROWS (a multiple of 16), RELU (0: tanh).
#define APPROXIMATE 1
#include "learn/mma/mma.cuh"
#include "learn/recurrent/images.cuh"

constexpr int K = padded(OBS), N = padded(OUT), OUT_STRIDE = (POSITIONS * OUT + 7) / 8 * 8;

struct Workspace {
  alignas(16) bf16 patches[ROWS * Matrix<K>::STRIDE];
  alignas(16) bf16 outputs[ROWS * Matrix<N>::STRIDE];  // or derivatives by them
  alignas(16) bf16 kernels[N * Matrix<K>::STRIDE];
  float bias[N];
};

// Rows that are acted upon.
struct Rows {
  int rows;
  const void* obs;      // (rows) of observed.cuh
  const float* center;  // (ENTRIES) or null: observations are normalised
  const float* scale;   // (ENTRIES)
  const float* weight;  // (OUT, OBS)
  const float* bias;    // (OUT)
  bf16* out;            // (rows, OUT_STRIDE)
};
struct Part {
  Learn learn;
  int shares;           // teams among which `gradient` shares out all tiles
  const float* weight;  // (OUT, OBS)
  const float* bias;    // (OUT)
  bf16* out;            // rows (OUT_STRIDE): activations
  const bf16* by_out;   // rows (OUT_STRIDE): derivatives by them
  float* sums;          // (shares, OUT * (OBS + 1)): gradients of the weights, then of the bias
};

// Entries [d, d + RUN) of an image, as bfloat16. Bits become 0 or 1 without arithmetic of floats.
DEVICE void load_run(bf16* to, const Image& image, const int d) {
#if OBSERVED == OBSERVED_BITS
  if constexpr (RUN <= 32 && RUN % 2 == 0) {
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
// Patches [from, from + count) as rows of a matrix. Behind OBS entries, and behind `count` rows, zeros stay.
template <class ImageOf>
DEVICE void load_patches(const Team team, const Matrix<K> to, const int from, const int count, ImageOf images) {
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    const Image image = images(row);
    for (int i : team.each(patches * SPAN)) {
      const int m = i / SPAN, down = i % SPAN;
      load_run(to.row(first + m) + down * RUN, image, corner_of(position + m) + down * IMAGE_WIDTH * CHANNELS);
    }
  });
}
// Zeros for all that no patch fills.
DEVICE void clear_patches(const Team team, const Matrix<K> patches) {
  for (int i : team.each(ROWS * (K / 2))) patches.two(i / (K / 2), i % (K / 2) * 2) = 0u;
}
// visit(row's entries in memory, a tile's row, numbers of it from `n` on) for the outputs of patches [from, from + count): eight at
// once where their places allow it.
template <class Visit> DEVICE void each_output(const Team team, const int from, const int count, Visit visit) {
  constexpr int WIDE = OUT % 8 == 0 ? 8 : 1, ACROSS = OUT / WIDE;
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    for (int i : team.each(patches * ACROSS)) visit(row, (position + i / ACROSS) * OUT + i % ACROSS * WIDE, first + i / ACROSS, i % ACROSS * WIDE);
  });
}
// As many entries as move at once.
struct alignas(OUT % 8 == 0 ? 16 : 2) MAY_ALIAS Entries { bf16 of[OUT % 8 == 0 ? 8 : 1]; };

// Outputs of patches [from, from + count), to rows(row).
template <class ImageOf, class RowOf>
DEVICE void convolve(const Team team, Workspace& work, const float* weight, const float* bias, const int from, const int count,
                     ImageOf images, RowOf rows) {
  const Matrix<K> patches{work.patches}, kernels{work.kernels};
  const Matrix<N> outputs{work.outputs};
  for (int i : team.each(N * (K / 2))) {
    const int n = i / (K / 2), k = i % (K / 2) * 2;
    const float* const own = weight + n * OBS + k;
    kernels.two(n, k) = pair(n < OUT && k < OBS ? own[0] : 0.0f, n < OUT && k + 1 < OBS ? own[1] : 0.0f);
  }
  for (int n : team.each(N)) work.bias[n] = n < OUT ? bias[n] : 0.0f;
  clear_patches(team, patches);
  team.sync();  // before patches are written
  for (int at = 0; at < count; at += ROWS) {
    const int left = count - at, here = left < ROWS ? left : ROWS;
    load_patches(team, patches, from + at, here, images);
    team.sync();  // before patches, kernels and biases are read
    product<ROWS, N, K, true>(team, patches, kernels, [&](const int m, const int n, const float c, const float d) INLINED {
      outputs.two(m, n) = pair(policy::activation<RELU>(c + work.bias[n]), policy::activation<RELU>(d + work.bias[n + 1]));
    });
    team.sync();  // before outputs are read, and patches are written again
    each_output(team, from + at, here, [&](const int row, const int place, const int m, const int n) INLINED {
      *(Entries*)(rows(row) + place) = *(const Entries*)(outputs.row(m) + n);
    });
  }
}

DEVICE void see_tile(const Rows& call, const Team team, Workspace& work, const int e) {
  const int from = e * TILE, left = call.rows * POSITIONS - from;
  convolve(team, work, call.weight, call.bias, from, left < TILE ? left : TILE,
           [&](const int row) INLINED { return Image{call.obs, (size_type)row, call.center, call.scale}; },
           [&](const int row) INLINED { return call.out + (size_type)row * OUT_STRIDE; });
}
DEVICE void see_tile_of_block(const Part& call, const Team team, Workspace& work, const int e) {
  const Share<POSITIONS> own(call.learn, e);
  if (own.count <= 0 || *call.learn.skip > 0.0f) return;
  convolve(team, work, call.weight, call.bias, own.from, own.count,
           [&](const int row) INLINED { return image_of(call.learn, nullptr, own.of, row); },
           [&](const int row) INLINED { return call.out + own.of.row(row) * OUT_STRIDE; });
}

// The gradient of tiles share, share + shares, ... of all blocks.
DEVICE void learn_share(const Part& call, const Team team, Workspace& work, const int share) {
  if (*call.learn.skip > 0.0f) return;
  const Matrix<K> patches{work.patches};
  const Matrix<N> slopes{work.outputs};
  LinearAccumulator<N, K> sums;
  sums.clear();
  clear_patches(team, patches);
  for (int tile = share; tile < call.learn.blocks * Share<POSITIONS>::tiles_of_block(call.learn); tile += call.shares) {
    const Share<POSITIONS> own(call.learn, tile);
    const Sequences& of = own.of;
    for (int at = 0; at < own.count; at += ROWS) {
      const int from = own.from + at, left = own.count - at, count = left < ROWS ? left : ROWS;
      team.sync();  // before patches and slopes are written, which a product may still read
      load_patches(team, patches, from, count, [&](const int row) INLINED { return image_of(call.learn, nullptr, of, row); });
      if (count < ROWS || OUT < N) {
        for (int i : team.each(ROWS * (N / 2))) slopes.two(i / (N / 2), i % (N / 2) * 2) = 0u;
        team.sync();  // before slopes are written
      }
      each_output(team, from, count, [&](const int row, const int place, const int m, const int n) INLINED {
        const size_type there = of.row(row) * OUT_STRIDE + place;
        Entries by_out = *(const Entries*)(call.by_out + there), out = *(const Entries*)(call.out + there);
        UNROLL for (int j = 0; j < (int)(sizeof(Entries) / sizeof(bf16)); ++j) {
          by_out.of[j] = first_of(by_out.of[j].bits) * policy::activation_gradient<RELU>(first_of(out.of[j].bits));
        }
        *(Entries*)(slopes.row(m) + n) = by_out;
      });
      team.sync();  // before both are read
      sums.template add<ROWS>(team, slopes, patches);
    }
  }
  float* const to = call.sums + (size_type)share * (OUT * (OBS + 1));
  sums.each(team, [&](const int n, const int k, const float c, const float d) INLINED {
    if (n >= OUT) return;
    if (k < OBS) to[n * OBS + k] = c;
    if (k + 1 < OBS) to[n * OBS + k + 1] = d;
  });
  sums.each_column(team, [&](const int n, const float sum) INLINED {
    if (n < OUT) to[OUT * OBS + n] = sum;
  });
}

#include "drive/launch.cuh"
KERNEL(see, Rows, (call.rows * POSITIONS + TILE - 1) / TILE, see_tile(call, team, *work, e))
KERNEL(see_in_sequences, Part, call.learn.blocks * Share<POSITIONS>::tiles_of_block(call.learn), see_tile_of_block(call, team, *work, e))
KERNEL(gradient, Part, call.shares, learn_share(call, team, *work, e))
