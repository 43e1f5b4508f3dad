// schedule.cu -- Write the scheduled numbers of many learners, each to its own address.
#include "drive/platform.cuh"

struct Workspace {};
struct Schedules {
  int numbers;        // F: number of scheduled values
  const float* now;   // (F): their current values
  float* const* to;   // (F): address of each one in its learner
};

#include "drive/launch.cuh"
KERNEL(write_schedules, Schedules, call.numbers, *call.to[e] = call.now[e])
