// schedule.cu -- writes the scheduled numbers of many learners, each of which has a place of its own.
#include "drive/platform.cuh"

struct Workspace {};
struct Schedules {
  int numbers;        // F
  const float* now;   // (F)
  float* const* to;   // (F)
};

#include "drive/launch.cuh"
KERNEL(write_schedules, Schedules, call.numbers, *call.to[e] = call.now[e])
