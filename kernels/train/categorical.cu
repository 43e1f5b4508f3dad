// categorical.cu -- Draw the actions of a policy with one or more discrete heads.
//
// Constants: those of sample_choices.cuh.
#include "train/sample_choices.cuh"

struct Workspace {};

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e, call.parameters + (size_type)e * call.stride))
