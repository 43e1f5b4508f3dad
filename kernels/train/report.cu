// report.cu -- Collect the numbers of a run that the host reads in one array, and reset its counters.
//
// Sums are those of sums.cuh, in double precision, so that CPU and GPU report the same bits.
// Constants: NAMES (numbers that are recorded of an episode), LEARNERS (at least 1), ARRAYS (searched for non-finite numbers).
#include "drive/platform.cuh"
#include "learn/sums.cuh"

struct Workspace { double chain[CHAINS]; };
struct Report {
  int num_envs;
  int size[LEARNERS];            // K: length of `metric_sums`
  int first[LEARNERS];           // offset of these in `numbers`, where `bad` follows them
  const float* latest;           // (NAMES, N): each environment's latest episode. Row 0: its length, 0 if there is none
  double* count;                 // (1): episodes since the last report
  float* metric_sums[LEARNERS];  // (K): sums since the last report
  const float* bad[LEARNERS];    // (1)
  const i64* nonfinite;          // (ARRAYS)
  double* numbers;               // episodes, minimum length, means over environments (NAMES), then per learner its sums and `bad`
  i64* found;                    // (ARRAYS): copy of `nonfinite`, stored after `numbers`
};

// Report the minimum length of the environments' latest episodes, and the means of their recorded numbers.
DEVICE void report_mean(const Report& call, const Team team, Workspace& work, const int e) {
  const float* const row = call.latest + (size_type)e * call.num_envs;
  const int used = chains_of(call.num_envs);
  for (int c : team.each(used)) {
    double sum = 0.0;
    UNROLL_TIMES(8) for (int i = c; i < call.num_envs; i += CHAINS) sum += (double)row[i];
    work.chain[c] = sum;
  }
  const double sum = add_halves(team, work.chain, used);
  if (team.leader()) call.numbers[2 + e] = sum / (double)call.num_envs;
  if (e > 0) return;
  int least = 0x7fffffff;
  UNROLL_TIMES(8) for (int i : team.each(call.num_envs)) {
    const int length = (int)row[i];
    least = length < least ? length : least;  // mutant(swap <): equal where they meet
  }
  least = team.min(least);
  if (team.leader()) call.numbers[1] = (double)least;  // mutant(dropped condition): all threads write the same
}

DEVICE void report_sums(const Report& call, const Team team) {
  for (int learner = 0; learner < LEARNERS; ++learner) {
    const int size = call.size[learner];
    for (int k : team.each(size + 1)) {
      double& to = call.numbers[call.first[learner] + k];
      to = (double)(k < size ? call.metric_sums[learner][k] : *call.bad[learner]);
      if (k < size) call.metric_sums[learner][k] = 0.0f;
    }
  }
  for (int k : team.each(ARRAYS)) call.found[k] = call.nonfinite[k];
  if (!team.leader()) return;
  call.numbers[0] = *call.count;
  *call.count = 0.0;
}

DEVICE void report_row(const Report& call, const Team team, Workspace& work, const int e) {
  if (e < NAMES) report_mean(call, team, work, e);
  else report_sums(call, team);
}

#include "drive/launch.cuh"
KERNEL(report, Report, NAMES + 1, report_row(call, team, *work, e))
