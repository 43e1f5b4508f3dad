// splits.cuh -- Sum of the gradients of a split's blocks by one CPU thread, in the order of minibatches.cuh: rows of a chunk,
// chunks of a part, parts. Each number is added while a chunk's last tile has it in registers. `scratch`, SCRATCH_FLOATS numbers,
// holds the sums of a chunk, of a part and of the split.
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/exact/network.cuh"
#include "learn/minibatches.cuh"

constexpr int SCRATCH_FLOATS = 3 * CHUNK_FLOATS;

// Copy the gradients of a layer and of those after it from the layout of chunks to the layout of `gradients`.
template <class Here = Layer<0, 0>> DEVICE void copy_gradient(const float* from, float* to) {
  constexpr int T = Here::NUMBER / LAYERS, L = Here::NUMBER % LAYERS, AT = before(CHUNK, T, L), TO = before(GRADIENT, T, L);
  constexpr int WEIGHTS = Here::OUT * Here::IN_PAD;
  if constexpr (turned(L)) {
    for (int n = 0; n < Here::OUT; ++n) {
      for (int k = 0; k < Here::IN; ++k) to[TO + n * Here::IN_PAD + k] = from[AT + k * Here::OUT_PAD + n];
    }
  } else {
    memcpy(to + TO, from + AT, sizeof(float) * WEIGHTS);
  }
  memcpy(to + TO + WEIGHTS, from + AT + chunk_weights(Here::IN, Here::OUT, L), sizeof(float) * Here::OUT_PAD);
  if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) copy_gradient<typename Here::Next>(from, to);
}

// Fill `sums` with the gradient of split `split` of the blocks. rows_of(block): number of a chunk's rows. learn(block, Sums): adds
// the chunk.
template <int REPORTED, class RowsOf, class Chunk>
DEVICE void add_chunks(const Learn& call, const int split, float* scratch, float* sums, RowsOf rows_of, Chunk learn) {
  float* const part = scratch + CHUNK_FLOATS;
  float* const all = call.parts > 1 ? part + CHUNK_FLOATS : part;
  bool all_begun = false;
  each_part(call, split, [&](const int begin, int end) INLINED {
    while (end > begin && rows_of(end - 1) == 0) --end;
    bool begun = false;
    for (int b = begin; b < end; ++b) {
      if (rows_of(b) == 0) continue;
      learn(b, Sums{scratch, true, false, part, begun, b == end - 1 && all != part, all, all_begun});
      begun = true;
    }
    all_begun = all_begun || begun;
  });
  if (!all_begun) for (int i = 0; i < CHUNK_FLOATS; ++i) all[i] = 0.0f;
  copy_gradient(all, sums);
  memcpy(sums + GRADIENT_FLOATS - METRICS, all + CHUNK_FLOATS - METRICS, sizeof(float) * REPORTED);
}
