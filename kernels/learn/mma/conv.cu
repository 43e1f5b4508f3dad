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
  union {
    alignas(16) bf16 kernels[N * Matrix<K>::STRIDE];
    alignas(16) bf16 slopes[ROWS * Matrix<N>::STRIDE];
  };
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
  const float* weight;  // (OUT, OBS)
  const float* bias;    // (OUT)
  bf16* out;            // rows (OUT_STRIDE): activations
  const bf16* by_out;   // rows (OUT_STRIDE): derivatives by them
  float* sums;          // (blocks, OUT, OBS + 1): gradients of the weights, then of the bias
};

// Entries k and k + 1 of patches [from, from + count) as rows of a matrix, and zeros behind them. A thread has the same two entries
// of several patches.
template <class ImageOf>
DEVICE void load_patches(const Team team, const Matrix<K> to, const int from, const int count, ImageOf images) {
  constexpr int PAIRS = K / 2, SHARERS = TEAM > PAIRS ? TEAM / PAIRS : 1;
  for (int i = team.rank % PAIRS; i < PAIRS && team.rank / PAIRS < SHARERS; i += TEAM) {
    const int k = 2 * i, first_entry = below(k), second_entry = below(k + 1);
    each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
      const Image image = images(row);
      for (int m = team.rank / PAIRS; m < patches; m += SHARERS) {
        const int corner = corner_of(position + m);
        const float one = k < OBS ? image.get(corner + first_entry) : 0.0f;
        const float two = k + 1 < OBS ? image.get(corner + second_entry) : 0.0f;
        to.two(first + m, k) = pair(one, two);
      }
    });
    for (int m = count + team.rank / PAIRS; m < ROWS; m += SHARERS) to.two(m, k) = 0u;
  }
}

// Outputs of patches [from, from + count), to rows(row).
template <class ImageOf, class RowOf>
DEVICE void convolve(const Team team, Workspace& work, const float* weight, const float* bias, const int from, const int count,
                     ImageOf images, RowOf rows) {
  const Matrix<K> patches{work.patches}, kernels{work.kernels};
  for (int i : team.each(N * (K / 2))) {
    const int n = i / (K / 2), k = i % (K / 2) * 2;
    const float* const own = weight + n * OBS + k;
    kernels.two(n, k) = pair(n < OUT && k < OBS ? own[0] : 0.0f, n < OUT && k + 1 < OBS ? own[1] : 0.0f);
  }
  for (int n : team.each(N)) work.bias[n] = n < OUT ? bias[n] : 0.0f;
  for (int at = 0; at < count; at += ROWS) {
    const int left = count - at, here = left < ROWS ? left : ROWS;
    if (at > 0) team.sync();  // the product before has read its patches
    load_patches(team, patches, from + at, here, images);
    team.sync();  // before patches, kernels and biases are read
    product<ROWS, N, K, true>(team, patches, kernels, [&](const int m, const int n, const float c, const float d) INLINED {
      if (m >= here || n >= OUT) return;
      const int patch = from + at + m, row = patch / POSITIONS, position = patch % POSITIONS;
      bf16* const to = rows(row) + position * OUT + n;
      const float one = policy::activation<RELU>(c + work.bias[n]), two = policy::activation<RELU>(d + work.bias[n + 1]);
      if constexpr (OUT % 2 == 0) {
        *(Word*)to = pair(one, two);
      } else {
        to[0] = one;
        if (n + 1 < OUT) to[1] = two;
      }
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

// Derivatives by the sums of patches [from, from + count), as rows of a matrix, and zeros behind them.
DEVICE void load_slopes(const Part& call, const Team team, const Matrix<N> to, const Sequences& of, const int from, const int count) {
  each_row(from, count, [&](const int row, const int first, const int position, const int patches) INLINED {
    const size_type there = of.row(row) * OUT_STRIDE + position * OUT;
    const auto slope = [&](const u32 by_out, const u32 out) INLINED {
      return first_of(by_out) * policy::activation_gradient<RELU>(first_of(out));
    };
    for (int i : team.each(patches * (N / 2))) {
      const int m = i / (N / 2), n = i % (N / 2) * 2;
      const bf16 *const by_out = call.by_out + there + m * OUT + n, *const out = call.out + there + m * OUT + n;
      u32 two = 0u;
      if constexpr (OUT % 2 == 0) {
        if (n < OUT) {
          const Word d = *(const Word*)by_out, y = *(const Word*)out;
          two = pair(slope(d, y), slope(d >> 16, y >> 16));
        }
      } else {
        const auto at = [&](const int j) INLINED { return n + j < OUT ? slope(by_out[j].bits, out[j].bits) : 0.0f; };
        two = pair(at(0), at(1));
      }
      to.two(first + m, n) = two;
    }
  });
  for (int i : team.each((ROWS - count) * (N / 2))) to.two(count + i / (N / 2), i % (N / 2) * 2) = 0u;
}

// The gradient of one block.
DEVICE void learn_block(const Part& call, const Team team, Workspace& work, const int block) {
  const Sequences of(call.learn, block);
  if (*call.learn.skip > 0.0f) return;
  const Matrix<K> patches{work.patches};
  const Matrix<N> slopes{work.slopes};
  LinearAccumulator<N, K> sums;
  sums.clear();
  const int all = of.rows() * POSITIONS;
  for (int from = 0; from < all; from += ROWS) {
    const int left = all - from, count = left < ROWS ? left : ROWS;
    if (from > 0) team.sync();  // the product before has read both
    load_patches(team, patches, from, count, [&](const int row) INLINED { return image_of(call.learn, nullptr, of, row); });
    load_slopes(call, team, slopes, of, from, count);
    team.sync();  // before both are read
    sums.template add<ROWS>(team, slopes, patches);
  }
  float* const to = call.sums + (size_type)block * (OUT * (OBS + 1));
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
KERNEL(gradient, Part, call.learn.blocks, learn_block(call, team, *work, e))
