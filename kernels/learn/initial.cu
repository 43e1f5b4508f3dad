// initial.cu -- Orthogonal initialization of one layer's weights, scaled by a gain. Runs on the CPU.
//
// Source: Saxe, McClelland & Ganguli 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks".
// Modified Gram-Schmidt on normal vectors, applied twice (Giraud, Langou & Rozloznik 2005, "The loss of orthogonality in the
// Gram-Schmidt orthogonalization process"). One thread works in one fixed order, so the bits are equal on every machine.
// call: kernel arguments (drive/launch.cuh).
#include "train/normals.cuh"

constexpr int LANES = 16;  // accumulators of one dot product, added in order at its end

struct Workspace {};
struct Initial {
  int vectors, length;  // length >= vectors: number of orthonormal vectors, and of entries in each
  int by_columns;       // 1: the vectors are columns of the weights, (length, vectors). 0: they are rows, (vectors, length)
  int agent, layer, part;  // key of the random numbers: the policy's first agent, the layer, the part of its rows
  float gain;
  const u64* seed;      // (1)
  float* memory;        // (vectors, length rounded up to LANES): workspace, zeros
  float* weights;
};

DEVICE float dot(const float* a, const float* b, const int padded) {
  float lane[LANES] = {};
  for (int i = 0; i < padded; i += LANES) {
    // mutant(swap <): the additional accumulator is not added
    for (int j = 0; j < LANES; ++j) lane[j] = math::fma(a[i + j], b[i + j], lane[j]);
  }
  float sum = 0.0f;
  for (int j = 0; j < LANES; ++j) sum += lane[j];
  return sum;
}

DEVICE void make_weights(const Initial& call) {
  const int padded = (call.length + LANES - 1) / LANES * LANES;
  for (int v = 0; v < call.vectors; ++v) {
    float* const own = call.memory + (size_type)v * padded;
    // Draw a normal vector.
    Normals four{};
    for (int i = 0; i < call.length; ++i) {
      const u32 element = (u32)(v * call.length + i);
      const Random random{*call.seed, element / 4, 0u, (u32)call.layer, WEIGHTS};
      if (i == 0 || element % 4 == 0) four = normals(random, call.agent, call.part);
      own[i] = four.pick((int)(element % 4));
    }
    // Orthogonalize it against all earlier vectors, twice.
    for (int again = 0; again < 2; ++again) {
      for (int u = 0; u < v; ++u) {
        const float* const other = call.memory + (size_type)u * padded;
        const float shared = dot(own, other, padded);
        for (int i = 0; i < padded; ++i) own[i] = math::fma(-shared, other[i], own[i]);
      }
    }
    // Normalize it, and store it times the gain.
    const float norm = math::sqrt(dot(own, own, padded));
    for (int i = 0; i < padded; ++i) own[i] /= norm;
    for (int i = 0; i < call.length; ++i) {
      call.weights[call.by_columns ? (size_type)i * call.vectors + v : (size_type)v * call.length + i] = call.gain * own[i];
    }
  }
}

#include "drive/launch.cuh"
KERNEL(make_initial, Initial, 1, make_weights(call))
