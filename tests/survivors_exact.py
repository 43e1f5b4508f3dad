"""Mutants of the learner's exact kernels that no test can see: part of survivors.py."""

UPDATE = "learn/update.cu"
SPEED = "does more work than is needed, with the same result"
FINITE = "of the loss it is only asked whether it is finite; what is reported is made elsewhere"
ONE = "on a CPU one member adds up a whole strip, one number of the launch at once: ACROSS and AT_ONCE are 1"
UNUSED = "the norm itself is reported there, not this number"
NO_NUMBER = "one turn more, whose number is behind all that are reported and all tensors"
LOSS = "const float loss = sums[0] * inverse - ent_coef * (sums[2] * inverse) + vf_coef * (sums[1] * inverse);"
PART = "const int part = k / ACROSS, lane = k % ACROSS * SIDE;"
ADD = "if (first + j < end) sum.add(more[j]);"
CHAIN = "total.store(work.chain + k * SIDE);"
CHANGE = (
    "if (k != call.norm_at) change[own] = k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;"
)
TURNS = "UNROLL for (int own = 0; own < OWN; ++own) {"
EXACT = {
    (UPDATE, LOSS, LOSS.replace("ent_coef *", "ent_coef +")): FINITE,
    (UPDATE, PART, PART.replace("k / ACROSS", "k * ACROSS")): ONE,
    (UPDATE, ADD, ADD.replace("if (first + j < end) ", "")): ONE,
    (UPDATE, CHAIN, CHAIN.replace("+", "-")): ONE,
    (UPDATE, CHANGE, CHANGE.replace("if (k != call.norm_at) ", "")): UNUSED,
    (UPDATE, CHANGE, CHANGE.replace("k < call", "k <= call")): UNUSED,
    (UPDATE, TURNS, TURNS.replace("<", "<=")): NO_NUMBER,
}
