// schedule.cu -- Write the scheduled numbers of many learners, each to its own address.
#include "drive/platform.cuh"

struct Workspace {};
struct Schedules {
  int numbers;        // F
  const float* now;   // (F)
  float* const* to;   // (F)
};

#include "drive/launch.cuh"
KERNEL(write_schedules, Schedules, call.numbers, *call.to[e] = call.now[e])
