// step.cuh -- what happens in a step, and in which order.
//
// The phases are written twice: by phases.cuh for one environment in the hands of a thread or a team of threads, by simd.cuh
// for some side by side in the vector registers of a CPU. python_kernels.py follows the same phases for kernels in Python.
#pragma once
#include "drive/batch.cuh"

template <class Phases> DEVICE void take_step(Phases& env, const int t) {
  env.fetch_actions(t);  // given, or drawn
  env.begin_step();      // rewards are 0, one more step has passed, random numbers are this step's
  env.step();            // the environment's own; then whether it has ended, or is over by the time limit
  env.end_step();        // rewards are added up
  env.record();          // length, returns and counts of an episode that is over
  // One loop, so that a large `observe` is compiled into the kernel once; small ones twice, which spares choosing the row.
  UNROLL_TIMES(Phases::UNROLLED_VIEWS) for (int view = env.first_view(); view <= NEXT; ++view) {
    if (view == NEXT) env.reset();  // where the episode is over (Gymnasium's autoreset in the same step)
    env.observe((View)view);        // the state that it has ended with, if that is wanted; where the next step begins
  }
  env.commit();          // the step's rows leave
}

template <class Phases> DEVICE void take_steps(Phases& env, const int from, const int until) {
  env.load(from);
  for (int t = from; t < until; ++t) take_step(env, t);
  env.store();
}
