// mixed.cu -- Sample the actions of a policy with discrete heads and a Box.
//
// Constants: those of sample_mixed.cuh.
#include "train/sample_mixed.cuh"

struct Workspace {};

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e, call.parameters + (size_type)e * call.stride))
