// epsilon_greedy.cu -- Sample the actions of an epsilon-greedy policy with one discrete head.
//
// Constants: those of sample_greedy.cuh.
#include "train/sample_greedy.cuh"

struct Workspace {};

#include "drive/launch.cuh"
KERNEL(sample_actions, Sample, call.num_envs * call.agents, sample_row(call, e, call.parameters + (size_type)e * call.stride))
