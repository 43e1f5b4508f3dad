// wide_weights.cu -- Pack weights as `fragments` (wide.cuh).
//
// call: kernel arguments (drive/launch.cuh).
#include "learn/wide/wide.cuh"

struct Workspace {};
struct WideWeights {
  const float* tensors[TENSORS];  // weights and biases in the network's own memory
  bf16* fragments;
};

// Weight (n, k) of a layer, or 0 outside of it. If its inputs are bits, which an operand has as 0 or 2, half of it.
template <class Here> DEVICE float weight_at(Here, const float* weights, const int n, const int k) {
  const float weight = n < Here::OUT && k < Here::IN ? weights[n * Here::IN + k] : 0.0f;
  return STORES_BITS && Here::FIRST ? 0.5f * weight : weight;
}

// Pack the fragment of one thread in one MMA tile (16 x 16): elements [i, i + 8) of a layer in one direction.
template <bool FORWARD, class Here> DEVICE void pack_lane(const WideWeights& call, Here here, const int i, bf16* to) {
  constexpr int K = FORWARD ? Here::IN_PAD : Here::OUT_PAD;
  const int block = i / 256, lane = i % 256 / LANE_ELEMENTS;
  const float* const weights = call.tensors[2 * Here::NUMBER];
  UNROLL for (int word = 0; word < 4; ++word) {
    const int k = block % (K / 16) * 16 + word % 2 * 8 + lane % 4 * 2, n = block / (K / 16) * 16 + word / 2 * 8 + lane / 4;
    *(u32*)(to + 2 * word) = FORWARD ? pair(weight_at(here, weights, n, k), weight_at(here, weights, n, k + 1))
                                     : pair(weight_at(here, weights, k, n), weight_at(here, weights, k + 1, n));
  }
}

// Pack elements [at, at + 8) of the fragments.
template <bool FORWARD = true, class Here = Layer<0, 0>> DEVICE void pack_elements(const WideWeights& call, const int at) {
  constexpr int FIRST = fragments_before(FORWARD, Here::NUMBER / LAYERS, Here::NUMBER % LAYERS);
  constexpr int ELEMENTS = FORWARD || !Here::FIRST ? Here::OUT_PAD * Here::IN_PAD : 0;
  if (at < FIRST + ELEMENTS) pack_lane<FORWARD>(call, Here{}, at - FIRST, call.fragments + at);
  else if constexpr (Here::NUMBER + 1 < TOWERS * LAYERS) pack_elements<FORWARD, typename Here::Next>(call, at);
  else if constexpr (FORWARD) pack_elements<false>(call, at);
}

#include "drive/launch.cuh"
KERNEL(pack_fragments, WideWeights, FRAGMENTS / LANE_ELEMENTS, pack_elements(call, e * LANE_ELEMENTS))
