// loss.cuh -- Loss of one row for PPO, A2C or PQN: gradients w.r.t. the network's outputs, and reported metrics.
//
// Source: cupydrive/algorithms/ppo.py, a2c.py and pqn.py. Constants: those of the distribution, CLIPPED (1: PPO, 0: A2C), CLIP_VALUE,
// NORMALIZE (advantages), STORES (1: log-probabilities and values are stored, for cd.check_policy). Generated: Q_VALUES (1: PQN,
// whose outputs are the action values of one discrete head).
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/functions.cuh"
#include "learn/minibatches.cuh"
#include "learn/distribution.cuh"
#include "train/greedy.cuh"

constexpr int REPORTED = CLIPPED ? 6 : 3;  // number of metrics in use

// Inputs of the losses of one row, besides its observation.
struct Transition {
  bool active, valued;  // whether actor and critic learn from the row, whether the critic does
  Distribution::Action action[HEADS];
  const u8* mask;  // (CHOICES) or null
  float log_prob, value, advantage, returns;
  float *log_prob_now, *value_now;  // with STORES

  // Load the inputs of the policy loss and of the value loss.
  DEVICE void load(const Learn& call, const RowIndex place, const bool policy = true, const bool of_value = true) {
    const int g = place.group;
    const size_type row = (size_type)place.row;
    const u8 weight = place.weight(call);
    active = weight == 1;
    valued = weight != 0;
    if (policy) {
      for (int head = 0; head < HEADS; ++head) action[head] = ((const Distribution::Action*)call.action[g])[row * HEADS + head];
      mask = nullptr;
#if CATEGORICAL
      if (call.mask[g] != nullptr) mask = call.mask[g] + row * CHOICES;
#endif
      if constexpr (CLIPPED) log_prob = call.log_prob[g][row];
      advantage = call.advantage[g][row];
      if constexpr (STORES) log_prob_now = call.log_prob_now[g] + row;
    }
    if (of_value) {
      if constexpr (CLIP_VALUE) value = call.value[g][row];
      returns = call.returns[g][row];
      if constexpr (STORES) value_now = call.value_now[g] + row;
    }
  }
};

// Coefficients that the host schedules. They are loaded once, before the rows.
struct Coefficients {
  float clip, entropy, value;
  DEVICE explicit Coefficients(const Learn& call)
      : clip(CLIPPED ? *call.clip_coef : 0.0f), entropy(Q_VALUES ? 0.0f : *call.ent_coef),
        value(Q_VALUES ? 0.0f : *call.vf_coef) {}
};

// Replace the parameters of a row by the gradients of the policy loss w.r.t. them, and write the reported metrics to `metric`
// (METRICS).
DEVICE void differentiate_policy(const Coefficients& of, const Transition& row, const Moments moments, float* parameters,
                                 float* metric) {
  const Distribution now(parameters, row.mask, row.action);
  if constexpr (STORES) *row.log_prob_now = now.log_prob;
  float advantage = row.advantage;
  if constexpr (NORMALIZE) advantage = quotient(advantage - moments.mean, moments.divisor);

  float objective, log_prob_grad;  // the objective, which is maximized, and its gradient w.r.t. the log-probability
  if constexpr (CLIPPED) {
    const float clip = of.clip, log_ratio = now.log_prob - row.log_prob, ratio = exponential(log_ratio);
    const float plain = advantage * ratio, clipped = advantage * math::clamp(ratio, 1.0f - clip, 1.0f + clip);
    objective = plain > clipped ? clipped : plain;  // keeps NaN; mutant(swap >): equal where they meet
    log_prob_grad = plain > clipped ? 0.0f : plain;
    metric[3] = -log_ratio;
    metric[4] = (ratio - 1.0f) - log_ratio;
    metric[5] = math::abs(ratio - 1.0f) > clip ? 1.0f : 0.0f;
  } else {
    objective = advantage * now.log_prob;
    log_prob_grad = advantage;
  }
  metric[0] = -objective;
  metric[2] = now.entropy;
  now.differentiate(parameters, row.action, -log_prob_grad * moments.inverse, -of.entropy * moments.inverse);
}

// Differentiate the value loss of a row.
DEVICE void differentiate_value(const Coefficients& of, const Transition& row, const Moments moments, float& value,
                                float* metric) {
  if constexpr (STORES) *row.value_now = value;
  const float difference = value - row.returns;
  float error = difference * difference, value_grad = difference;  // twice the loss, and its gradient w.r.t. the value
  if constexpr (CLIP_VALUE) {
    const float clip = of.clip, before = row.value, change = value - before;
    const float clipped = before + math::clamp(change, -clip, clip) - row.returns;
    const float clipped_grad = change < -clip || change > clip ? 0.0f : clipped;
    value_grad =
        clipped * clipped > error ? clipped_grad : clipped * clipped == error ? 0.5f * (difference + clipped_grad) : difference;
    error = clipped * clipped > error ? clipped * clipped : error;  // mutant(swap >): equal where they meet
  }
  metric[1] = 0.5f * error;
  value = of.value * value_grad * moments.inverse;
}

// Replace the action values of a row by the gradient of half the squared error of the action taken. They are the critic, which also
// learns from pauses.
DEVICE void differentiate_choice(const Transition& row, const Moments moments, float* values, float* metric) {
  const int action = (int)row.action[0];
  if constexpr (STORES) {
    if (row.active) *row.log_prob_now = values[action];
    if (row.valued) *row.value_now = ActionValues<PARAMETERS>(values, row.mask).top;
  }
  const float error = values[action] - row.returns;
  if (row.valued) metric[0] = 0.5f * error * error;
  if (row.active) metric[1] = values[action];
  for (int k = 0; k < PARAMETERS; ++k) values[k] = row.valued && k == action ? error * moments.inverse : 0.0f;
}

// Differentiate both losses of a row. An output that does not learn from the row has gradient 0.
DEVICE void differentiate_row(const Coefficients& of, const Transition& row, const Moments moments, float* parameters,
                              float& value, float* metric) {
  for (int k = 0; k < METRICS; ++k) metric[k] = 0.0f;
  if constexpr (Q_VALUES) return differentiate_choice(row, moments, parameters, metric);
  if (row.active) {
    differentiate_policy(of, row, moments, parameters, metric);
  } else {
    for (int k = 0; k < PARAMETERS; ++k) parameters[k] = 0.0f;
  }
  if (row.valued) differentiate_value(of, row, moments, value, metric);
  else value = 0.0f;
}
