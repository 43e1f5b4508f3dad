// norm_loss.cu -- The end of a network whose last hidden layer is normalized, forwards and backwards in one launch: normalization,
// activation, outputs, loss, and gradients w.r.t. the layer's product. For few outputs, in bfloat16.
//
// A warp of a GPU computes a row (norm_rows.cuh). Exponentials and logarithms of the loss are approximate, as in kernels/learn/mma.
// Constants: HEAD (outputs of the network), VALUE_AT (index of the value), TOTAL_FLOATS, those of norm_rows.cuh and loss.cuh.
// call: kernel arguments (drive/launch.cuh).
#include "learn/layerwise/norm_rows.cuh"
#include "learn/layers.cuh"
#include "learn/loss.cuh"

static_assert(POSITIONS == 1 && !SEQUENCES, "the row of a hidden layer without sequences is a row of the minibatch");
struct Workspace {};

struct NormLoss {
  Learn learn;
  int tile;                // rows of a team
  const Entry* in;         // rows: results of the layer's product
  Entry* in_grad;          // rows: gradients w.r.t. them
  Gains of;
  const Entry* head;       // (HEAD, STRIDE): weights of the last layer
  const float* head_bias;  // (HEAD)
  float* partial_sums;     // (tiles, TOTAL_FLOATS)
};

// Sums over the rows of a tile. In memory: gradients w.r.t. gains, biases, weights and biases of the last layer, then metrics.
struct TileSums {
  GainSums norm;
  Lane weight[HEAD];
  float bias[HEAD], metric[METRICS];

  DEVICE void store(const Team team, float* to) const {
    constexpr int BIASES_AT = (2 + HEAD) * ENTRIES, METRICS_AT = BIASES_AT + HEAD;
    static_assert(METRICS_AT + METRICS == TOTAL_FLOATS, "the host splits the sums likewise");
    each_entry<ENTRIES>(team, [&](int i, int n) INLINED {
      to[n] = norm.gain[i];
      to[ENTRIES + n] = norm.bias[i];
      UNROLL for (int k = 0; k < HEAD; ++k) to[(2 + k) * ENTRIES + n] = weight[k][i];
    });
    if (lane_of(team) != 0) return;  // mutant(swap !=): all lanes have the same
    // mutant(swap <): one element more, which the next loop overwrites
    UNROLL for (int k = 0; k < HEAD; ++k) to[BIASES_AT + k] = bias[k];
    UNROLL for (int k = 0; k < REPORTED; ++k) to[METRICS_AT + k] = metric[k];
  }
};

DEVICE void learn_tile(const NormLoss& call, const Team team, const int e) {
  const Learn& learn = call.learn;
  if (!computes(team) || *learn.skip > 0.0f) return;
  const Coefficients coefficients(learn);
  const Moments moments = learn.moments[learn.epoch * learn.minibatches + learn.minibatch];
  const int most = most_sequences(learn);
  TileSums sums{};
  each_row(learn.blocks * most, call.tile, e, [&](const size_type row) INLINED {
    const int block = (int)row / most, slot = (int)row % most;
    const Sequences of(learn, block);
    const bool there = slot < of.count;
    Transition transition;
    if (there) transition.load(learn, of.place(slot));  // mutant(dropped condition): another row, never used
    // Forward pass. Activations are rounded as in norm.cu.
    Lane y, x, grad;
    const float scale = normalize_row(team, call.in + place_of(row), y).scale;
    fill(team, x, [&](int i, int n) INLINED {
      Entry rounded;
      put(rounded, activation<RELU>(math::fma(y[i], call.of.gain[n], call.of.bias[n])));
      return number(rounded);
    });
    float outputs[HEAD];
    UNROLL for (int k = 0; k < HEAD; ++k) outputs[k] = output_of(team, x, call.head + k * STRIDE, call.head_bias[k]);
    // Differentiate the loss. All lanes compute the same.
    float metric[METRICS]{};
    if (there) differentiate_row(coefficients, transition, moments, outputs, outputs[VALUE_AT], metric);
    else UNROLL for (int k = 0; k < HEAD; ++k) outputs[k] = 0.0f;  // mutant(swap <): one element more, never read
    UNROLL for (int k = 0; k < REPORTED; ++k) sums.metric[k] += metric[k];
    // Backward pass through the last layer and the activation.
    fill(team, grad, [&](int, int) INLINED { return 0.0f; });
    UNROLL for (int k = 0; k < HEAD; ++k) {
      sums.bias[k] += outputs[k];
      each_entry<ENTRIES>(team, [&](int i, int n) INLINED {
        sums.weight[k][i] = math::fma(outputs[k], x[i], sums.weight[k][i]);
        grad[i] = math::fma(outputs[k], constant_number(call.head + k * STRIDE + n), grad[i]);
      });
    }
    fill(team, grad, [&](int i, int) INLINED { return grad[i] * activation_gradient<RELU>(x[i]); });
    sums.norm.add(team, grad, y);
    differentiate_norm(team, grad, y, call.of.gain, scale, call.in_grad + place_of(row));
  });
  sums.store(team, call.partial_sums + (size_type)e * TOTAL_FLOATS);
}

#include "drive/launch.cuh"
KERNEL(norm_loss, NormLoss, (call.learn.blocks * most_sequences(call.learn) + call.tile - 1) / call.tile, learn_tile(call, team, e))
