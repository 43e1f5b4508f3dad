"""Mutants of the learner's exact kernels that no test can see: part of survivors.py."""

UPDATE, SUMS, GRADIENT, LOSS_OF_ROW = (f"learn/{name}" for name in ("update.cu", "sums.cuh", "gradient.cu", "loss.cuh"))
MINIBATCHES, DRAWN = "learn/minibatches.cuh", "learn/minibatches.cu"
SPEED = "does more work than is needed, with the same result"
FINITE = "of the loss it is only asked whether it is finite; what is reported is made elsewhere"
ONE = "on a CPU one member adds up a whole strip, one number of the launch at once: ACROSS and AT_ONCE are 1"
UNUSED = "the norm itself is reported there, not this number"
NO_NUMBER = "one turn more, whose number is behind all that are reported and all tensors"
LOSS = "const float loss = sums[0] * inverse - ent_coef * (sums[2] * inverse) + vf_coef * (sums[1] * inverse);"
PART = "const int part = within / ACROSS, lane = within % ACROSS * SIDE;"
ADD = "if (first + j < end) sum.add(more[j]);"
CHAIN = "total.store(work.sum[strip] + lane);"
CHANGE = (
    "if (k != call.norm_at) change[own] = k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;"
)
TURNS = "UNROLL for (int own = 0; own < OWN; ++own) {"
SAME = "the two are the same number where they are equal"
NONE_LEFT = "where as many chains are used as half of them, none is added to another"
LEADERS = "on a CPU one member adds up a whole strip: the leader, who alone reads on"
OWN_WEIGHTS = "each member copies those weights of the row that it has written itself"
READ = "who goes on writes the chunk's sums after the syncs of its own forward pass, which all have to reach"
ALIKE = "all members have the same sum, and write it"
TURNS_OF_ROW = "adds up the numbers of a chain in the same order, however many of them are on their way at once"
FOUND = "every row is one of a group's, so that the last group ends the search"
HALF = "if (half >= used) continue;"
HALVES = "for (int c : team.each(used < 2 * half ? used - half : half)) of[c] += of[c + half];"
COPIED = "if (call.copies == nullptr) continue;"
SQUARES = "if (team.leader()) call.squares[chunk.place] = squares;"
AT_ONCE = "constexpr int AT_ONCE = SIDE_FLOATS > 1 || SHUFFLED ? 1 : 16;"
GROUPS = "for (; group < AGENT_GROUPS - 1; ++group) {"
LEAST = "constexpr int at_least_one(int n) { return n > 0 ? n : 1; }"
OBJECTIVE = "objective = plain > clipped ? clipped : plain;  // keeps NaN"
USED = "const int used = chains_of(STRIPS - 1);"
LOOKED = "for (int g = 0; g < AGENT_GROUPS - 1; ++g) {"
PART_OF = "DEVICE int part(int m, int n) const { return share(m, n, minibatches); }"
FIRST_ENV = "DEVICE int first_env(int b) const { return share(first_block + b, all_envs, all_blocks) - envs_before; }"
INITIAL = "learn/initial.cu"
LANE = "for (int j = 0; j < LANES; ++j) lane[j] = math::fma(a[i + j], b[i + j], lane[j]);"
PRODUCT = "the same product of the same numbers, which 32 bits hold where rows do not fill gigabytes"
NO_ROWS = "of no numbers each of the two chains is 0, and so is their sum"
FROM_TWICE = "for (int half = CHAINS * 2; half > 0; half /= 2) {"
CHAINS_OF = "DEVICE int chains_of(const int n) { return n < 1 ? 1 : n < CHAINS ? n : CHAINS; }"
ERROR = "error = near * near > error ? near * near : error;"
CHAINS_OF_CHUNK = "DEVICE int chains() const { return chains_of(until - from); }"
ROW = "const int j = first + k * CHAINS;"
LAST_ROW = "if (j >= chunk.until) continue;"
ONE_ROW = "on a CPU a chain has one row on its way at once, the first, which there is"
DIVISOR = "if (team.leader()) call.moments[e].divisor = math::sqrt(squares * call.moments[e].inverse) + 1e-8f;"
TOP = "top = math::max(top, logits[k]);"
SHARED = "if constexpr (SHARERS > 1) team.sync();"
REPORTERS = "for (int k : after(team, TEAM / 2).each(METRICS)) {"
TILES = "for (int at = from; at < until; at += TILE) {"
EXACT = {
    (GRADIENT, TILES, TILES.replace("<", "<=")): "one tile more, of no rows, which adds nothing",
    (GRADIENT, SHARED, SHARED.replace(">", ">=")): "all members call one sync more",
    (GRADIENT, LEAST, LEAST.replace(">", ">=")): "compilers for CPUs make an array of no numbers of it",
    (GRADIENT, REPORTERS, REPORTERS.replace("/", "*")): "other members add up the same numbers",
    (DRAWN, AT_ONCE, AT_ONCE.replace("> 1", ">= 1")): TURNS_OF_ROW,
    (DRAWN, CHAINS_OF_CHUNK, CHAINS_OF_CHUNK.replace("-", "+")): "more chains are added up, of nothing",
    (DRAWN, ROW, ROW.replace("+", "-")): ONE_ROW,
    (DRAWN, LAST_ROW, LAST_ROW.replace(">=", ">")): ONE_ROW,
    (DRAWN, DIVISOR, DIVISOR.replace("if (team.leader()) ", "")): ALIKE,
    (
        "learn/categorical.cuh",
        TOP,
        TOP.replace("top, logits[k]", "logits[k], top"),
    ): "the greater of the two is the same, whichever is first; of what is no number all are none, whatever the greatest is",
    (LOSS_OF_ROW, ERROR, ERROR.replace(">", ">=")): SAME,
    (SUMS, FROM_TWICE.replace("*", "/"), FROM_TWICE): "halves of more chains than are used are passed over",
    (SUMS, CHAINS_OF, CHAINS_OF.replace("n < C", "n <= C")): SAME,
    (SUMS, CHAINS_OF, CHAINS_OF.replace("n < 1", "n <= 1")): SAME,
    (SUMS, CHAINS_OF, CHAINS_OF.replace("n < 1", "n < (1 + 1)")): SAME,
    (SUMS, CHAINS_OF, CHAINS_OF.replace("? 1", "? (1 + 1)")): NO_ROWS,
    (MINIBATCHES, LOOKED, LOOKED.replace("<", "<=")): FOUND,
    (MINIBATCHES, PART_OF, PART_OF.replace("(m, n, m", "(n, m, m")): PRODUCT,
    (MINIBATCHES, FIRST_ENV, FIRST_ENV.replace("first_block + b, all_envs", "all_envs, first_block + b")): PRODUCT,
    (
        UPDATE,
        USED,
        USED.replace("- 1", "+ 1"),
    ): "two chains more are added up, of nothing, which change no sum of squares",
    (SUMS, HALF, HALF.replace(">=", ">")): NONE_LEFT,
    (SUMS, HALVES, HALVES.replace("<", "<=")): SAME,
    (LOSS_OF_ROW, OBJECTIVE, OBJECTIVE.replace(">", ">=")): SAME,
    (MINIBATCHES, GROUPS, GROUPS.replace("- 1", "+ 1")): FOUND,
    (DRAWN, SQUARES, "call.squares[chunk.place] = squares;"): ALIKE,
    (DRAWN, AT_ONCE, AT_ONCE.replace("||", "&&")): TURNS_OF_ROW,
    (DRAWN, AT_ONCE, AT_ONCE.replace("? 1", "? (1 + 1)")): TURNS_OF_ROW,
    (GRADIENT, "begun = true;\nteam.sync();", ";"): READ,
    (GRADIENT, LEAST, LEAST.replace(": 1", ": (1 + 1)")): "takes more room than is needed, and nothing reads it",
    (UPDATE, "}\nteam.sync();", ";"): LEADERS,
    (UPDATE, f"{COPIED}\nteam.sync();", ";"): OWN_WEIGHTS,
    (UPDATE, LOSS, LOSS.replace("ent_coef *", "ent_coef +")): FINITE,
    (UPDATE, PART, PART.replace("within / ACROSS", "within * ACROSS")): ONE,
    (UPDATE, ADD, ADD.replace("if (first + j < end) ", "")): ONE,
    (UPDATE, CHAIN, CHAIN.replace("+", "-")): ONE,
    (UPDATE, CHANGE, CHANGE.replace("if (k != call.norm_at) ", "")): UNUSED,
    (UPDATE, CHANGE, CHANGE.replace("k < call", "k <= call")): UNUSED,
    (UPDATE, TURNS, TURNS.replace("<", "<=")): NO_NUMBER,
    (
        INITIAL,
        LANE,
        LANE.replace("<", "<="),
    ): "one chain more, behind all that are added up: a fault without a consequence",
}
