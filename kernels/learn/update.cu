// update.cu -- from sums of gradients to new weights: norm, clipping, Adam; and copies of weights as layers.cuh wants them.
//
// Source: Kingma & Ba 2015, "Adam: a method for stochastic optimization", algorithm 1, with epsilon outside of the root.
// Bias corrections are followed by the averages' own recursions, of an average of ones, so that they need no powers and
// correct what rounding does, too. Where `step` is another one than they were followed to, as in a checkpoint that was read,
// they are followed again from the beginning.
// Constants: those of layers.cuh.
#include "learn/layers.cuh"
#include "learn/sums.cuh"

constexpr float FIRST_RATE = 0.1f, SECOND_RATE = 0.001f, EPSILON = 1e-5f;  // 1 - beta of each average
constexpr int TENSORS = 2 * TOWERS * LAYERS;                               // weights and biases of each layer
constexpr int LANES = PAD;                                                 // numbers of `total` that one team adds up
constexpr int STRIPS = GRADIENT_FLOATS / LANES;                            // so many; the last one is of what is reported
constexpr int MOST_PARTS = 32;
static_assert(METRICS == LANES, "what is reported is one strip");

struct Workspace {
  float part[MOST_PARTS][LANES];  // sums over the pieces of each part
  float chain[CHAINS];
};

// What is decided for all weights of one step.
struct Decision {
  float scale;       // of the gradients
  float apply;       // 1: the step happens
  float rate;        // learning rate over the first average's correction
  float root;        // of the second average's correction
};
// The averages of ones after `step` steps.
struct Corrections { float first, second, step; };

struct Update {
  int pieces, parts;           // of `partials`; P, by which the blocks' sums are added: at most MOST_PARTS
  int epoch_ends;              // 1: this is an epoch's last minibatch
  int reported;                // numbers that `metric_sums` has before the last
  int norm_at;                 // which of them is the gradients' norm
  float target_kl;             // 0: none
  const float* inverse;        // (1): one over the minibatch's rows in the game
  const float* partials;       // (pieces, GRADIENT_FLOATS)
  float* total;                // (GRADIENT_FLOATS)
  float* squares;              // (STRIPS - 1): sums of the squares of LANES numbers of `total`
  int* arrived;                // (1): teams of `reduce` that are done; 0 between launches
  Decision* decision;          // (1)
  Corrections* corrections;    // (1)
  const float* learning_rate;  // (1)
  const float* ent_coef;       // (1)
  const float* vf_coef;        // (1)
  const float* max_grad_norm;  // (1)
  float* skip;                 // (1): 1: no step until the next iteration
  float* bad;                  // (1): 1: a loss or gradient was not finite; no step ever
  float* metric_sums;          // (reported + 1): the last one counts
  float* step;                 // (TENSORS): steps so far, all equal
  float* copies;
  float* weights[TENSORS];     // the network's own memory, (OUT, IN) or (OUT)
  float* first[TENSORS];       // Adam's averages, of the same shapes
  float* second[TENSORS];
};

DEVICE bool is_finite(float x) { return (math::bits(x) & 0x7f800000u) != 0x7f800000u; }

// Whether this team is the last of `size` to come here; if so, it sees what the others wrote before.
DEVICE bool comes_last(const Team team, int* arrived, const int size) {
  team.sync();
  bool last = false;
  if (team.leader() && arrive(arrived) == size - 1) {
    *arrived = 0;
    last = true;
  }
  return team.any(last);
}

// What happens with this minibatch.
DEVICE void decide_step(const Update& call, const Team team, Workspace& work) {
  const int used = chains_of(STRIPS - 1);
  for (int c : team.each(used)) {
    float square = 0.0f;
    for (int strip = c; strip < STRIPS - 1; strip += CHAINS) square += call.squares[strip];
    work.chain[c] = square;
  }
  add_halves(team, work.chain, used);
  const float norm = math::sqrt(work.chain[0]), inverse = *call.inverse, bad = *call.bad, step = call.step[0] + 1.0f;
  const float* const sums = call.total + GRADIENT_FLOATS - METRICS;
  const float loss = sums[0] * inverse - *call.ent_coef * (sums[2] * inverse) + *call.vf_coef * (sums[1] * inverse);
  const bool sound = is_finite(norm) && is_finite(loss) && !(bad > 0.0f);
  const bool too_far = call.epoch_ends && call.target_kl > 0.0f && sums[4] * inverse > call.target_kl;
  team.sync();  // all have read `step` and `bad`
  if (sound) {
    for (int k : team.each(call.reported + 1)) {
      const int of = k < call.norm_at ? k : k - 1;
      call.metric_sums[k] += k == call.reported ? 1.0f : k == call.norm_at ? norm : sums[of] * inverse;
    }
    for (int k : team.each(TENSORS)) call.step[k] = step;
  }
  if (!team.leader()) return;
  if (!sound) {
    *call.decision = {0.0f, 0.0f, 0.0f, 0.0f};
    *call.bad = 1.0f;
    *call.skip = 1.0f;
    return;
  }
  const float scale = *call.max_grad_norm / (norm + 1e-6f);
  Corrections made = *call.corrections;
  if (made.step + 1.0f != step) made = {0.0f, 0.0f, 0.0f};
  while (made.step < step) {
    const Corrections before = made;
    made.first = math::fma(FIRST_RATE, 1.0f - made.first, made.first);
    made.second = math::fma(1.0f - SECOND_RATE, made.second, SECOND_RATE);
    made.step += 1.0f;
    if (made.first == before.first && made.second == before.second) made.step = step;  // they change no more
  }
  *call.corrections = made;
  *call.decision = {scale < 1.0f ? scale : 1.0f, 1.0f, *call.learning_rate / made.first, math::sqrt(made.second)};
  if (too_far) *call.skip = 1.0f;
}

// Strip e of `total`: its sums, and their squares. The team that is done last decides about the step.
DEVICE void reduce_strip(const Update& call, const Team team, Workspace& work, const int e) {
  const float skip = *call.skip;
  constexpr int ACROSS = LANES / STRIP;  // members that share a strip
  for (int k : team.each(call.parts * ACROSS)) {
    const int part = k / ACROSS, lane = k % ACROSS * STRIP;
    const int begin = share(part, call.pieces, call.parts), end = share(part + 1, call.pieces, call.parts);
    const float* const from = call.partials + e * LANES + lane;
    Lanes<STRIP> sum{}, more;
    UNROLL_TIMES(4) for (int piece = begin; piece < end; ++piece) {
      more.load(from + (size_type)piece * GRADIENT_FLOATS);
      sum.add(more);
    }
    sum.store(work.part[part] + lane);
  }
  if (skip > 0.0f) {
    if (e == 0 && team.leader()) call.decision->apply = 0.0f;
    return;
  }
  team.sync();
  for (int k : team.each(ACROSS)) {
    Lanes<STRIP> total{}, more;
    UNROLL_TIMES(8) for (int part = 0; part < call.parts; ++part) {
      more.load(work.part[part] + k * STRIP);
      total.add(more);
    }
    total.store(call.total + e * LANES + k * STRIP);
    total.store(work.chain + k * STRIP);
  }
  team.sync();
  if (e < STRIPS - 1 && team.leader()) {
    float square = 0.0f;
    for (int j = 0; j < LANES; ++j) square = math::fma(work.chain[j], work.chain[j], square);
    call.squares[e] = square;
  }
  if (comes_last(team, call.arrived, STRIPS)) decide_step(call, team, work);
}

// Puts one row of a layer's weights, or its biases, into `copies`.
template <class Here> DEVICE void copy_row(const Update& call, const Team team, Here, const int row) {
  float* const transposed = call.copies + Here::FORWARD_BEFORE;
  if (row == Here::OUT) {
    for (int n : team.each(Here::OUT)) transposed[Here::IN * Here::OUT_PAD + n] = call.weights[2 * Here::NUMBER + 1][n];
    return;
  }
  const float* const weights = call.weights[2 * Here::NUMBER] + (size_type)row * Here::IN;
  float* const own = call.copies + Here::BACKWARD_BEFORE + row * Here::IN_PAD;
  for (int k : team.each(Here::IN)) {
    transposed[k * Here::OUT_PAD + row] = weights[k];
    if constexpr (!Here::FIRST) own[k] = weights[k];
  }
}

DEVICE void lay_out_row(const Update& call, const Team team, const int e) {
  visit_row(e, [&](auto layer, const int row, int) INLINED { copy_row(call, team, layer, row); });
}

// Row e of the weights takes its step.
DEVICE void update_row(const Update& call, const Team team, const int e) {
  const Decision decision = *call.decision;
  if (decision.apply == 0.0f) return;
  visit_row(e, [&](auto layer, const int row, const int first_number) INLINED {
    typedef decltype(layer) Here;
    const bool biases = row == Here::OUT;
    const int tensor = 2 * Here::NUMBER + biases, columns = biases ? Here::OUT : Here::IN;
    const size_type begin = biases ? 0 : (size_type)row * Here::IN;
    float* const weights = call.weights[tensor] + begin;
    float* const first = call.first[tensor] + begin;
    float* const second = call.second[tensor] + begin;
    const float* const gradients = call.total + first_number;
    for (int k : team.each(columns)) {
      const float gradient = gradients[k] * decision.scale;
      first[k] = math::fma(FIRST_RATE, gradient - first[k], first[k]);
      second[k] = math::fma(1.0f - SECOND_RATE, second[k], SECOND_RATE * gradient * gradient);
      weights[k] -= decision.rate * (first[k] / (math::sqrt(second[k]) / decision.root + EPSILON));
    }
    team.sync();
    copy_row(call, team, layer, row);
  });
}

#include "drive/launch.cuh"
KERNEL(lay_out, Update, ROWS_OF_WEIGHTS, lay_out_row(call, team, e))
KERNEL(reduce, Update, STRIPS, reduce_strip(call, team, *work, e))
KERNEL(update, Update, ROWS_OF_WEIGHTS, update_row(call, team, e))
