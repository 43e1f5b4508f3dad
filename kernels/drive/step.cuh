// step.cuh -- The phases of a step, in order.
//
// They are written twice: in phases.cuh for one environment by a thread or a team of threads, and in simd.cuh for several
// environments in the vector registers of a CPU. python_kernels.py follows the same phases for kernels in Python.
#pragma once
#include "drive/batch.cuh"

template <class Phases> DEVICE void take_step(Phases& env, const int t) {
  env.fetch_actions(t);  // given, or drawn
  env.begin_step();      // clear rewards, count the step, and select this step's random numbers
  env.step();            // the environment's step, then whether it has ended, or is over by the time limit
  env.end_step();        // add up rewards
  env.record();          // record length, returns and metrics of an episode that is over
  // One loop, so that a large `observe` is compiled into the kernel once. A small one is compiled twice, which spares selecting the
  // row.
  UNROLL_TIMES(Phases::UNROLLED_VIEWS) for (int view = env.first_view(); view <= NEXT; ++view) {
    if (view == NEXT) env.reset();  // if the episode is over (Gymnasium's autoreset in the same step)
    env.observe((View)view);        // the final state, if it is wanted, then the state from which the next step starts
  }
  env.commit();          // store the step's rows
}

template <class Phases> DEVICE void take_steps(Phases& env, const int from, const int until) {
  env.load(from);
  for (int t = from; t < until; ++t) take_step(env, t);
  env.store();
}
