"""Mutants of the learner's kernels for matrix units that no test can see: part of survivors.py."""

BELOW_ROUNDING = "the last bit of a float changes what rounding to a bfloat allows for by less than a hundredth"
SPEED = "does more work than is needed, with the same result"
SAME = "the two are the same number where they are equal"
ONE_MORE = (
    "one number more is copied: it goes where the next copy goes, or to what nobody reads, and comes from what is in an "
    "array or just behind it, which only a sanitizer would see"
)
TINY = "rows that are not there have it on both sides, and a product of two numbers of 9e-41 is 0"
BESIDE = "until the next sync the second tower's observations alone are written, and they lie before all results"
NOBODYS = "nobody asks for the outputs of rows that are not there"
AT_ONCE = "a CPU has done at once what it ends or guards, loads and products that are under way on a GPU"
TURNED = "the towers of a tile change places among a launch's elements, and each writes to its own place"
ANYWHERE = "a CPU reads panels wherever they begin; the matrix units of a GPU do not, and its tests see it"
ZERO = "either way a zero is what leaves"
LAYERS, BFLOAT = "learn/tensor_layers.cuh", "learn/bfloat.cuh"
UNITS, SLABS, WIDE_FORWARD = "learn/matrix_units.cuh", "learn/slabs.cuh", "learn/wide_forward.cu"
SUMS, WIDE_GRADIENT = "learn/wide_sums.cu", "learn/wide_gradient.cu"
GROUPS, GROUP_TOWER, GROUP_RESIDENT = "learn/group_gradient.cu", "learn/group_tower.cuh", "learn/group_resident.cu"
COPY_FLOAT = "DEVICE void copy_ahead(float* to, const float* from, const bool there) { *to = there ? *from : 0.0f; }"
TOWER = "if (e % TOWERS == 0) learn_tower<0>(call, team, work, e / TOWERS);"
AWAITED = (
    "if constexpr (L == 0) team.sync();  // all have awaited the sums over the tile before, whose rows make room now"
)
LOAD = "if (turn > 0) load(turn);"
COPY = "for (int k = 0; k < 8; ++k) to[k].bits = there ? from[k].bits : (u16)0;"
LEFT = "const int first = e * ROWS, left = about.rows - first, rows = left < ROWS ? left : ROWS;"
TURN = "team.sync();  // its memory is written again"
ACTIVATE = "if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN"
SECOND = "DEVICE float second_of(u32 word) { return math::from_bits(word & 0xffff0000u); }"
PUT = "put_entry(call, tower, m, d, ENTRIES_AHEAD ? entries[ENTRIES_AHEAD ? k : 0] : entry_of(call, memory.row[m], d));"
RESIDENT, TOWER_GRADIENT = "learn/resident.cuh", "learn/tower_gradient.cuh"
LOSS = "const float loss = sums[0] * inverse - of.entropy * (sums[2] * inverse) + of.value * (sums[1] * inverse);"
FINITE = "all that is asked is whether it is finite, and an entropy is not where its gradients are not"
NORM = "const float norm = math::sqrt(square), scale = rates.max_grad_norm / (norm + 1e-6f);"
TOO_FAR = "const bool too_far = epoch_ends && target_kl > 0.0f && sums[4] * inverse > target_kl;"
OWN_REPORTS = "UNROLL for (int own = 0; own < OWN; ++own) {"
METRIC = "metric[own] += k == call.norm_at ? norm : k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;"
ENTRY = "if (ROWS * OBS % TEAM == 0 || i < ROWS * OBS) visit(k, i / OBS, i % OBS);"
THERE = "if (there[k]) row[k].load(call, Place(call, memory.row[m]));"
REPORTS = "UNROLL for (int j = 0; j < REPORTED; ++j) reported[j] += metric[j];"
ENTRIES = "float entries[ENTRIES_AHEAD ? OWN_ENTRIES : 1];"
TENSOR, TILE = "learn/tensor.cuh", "learn/tile.cuh"
RESULTS = (
    "static constexpr int RESULTS = padded(WIDTH[T][LAYERS]) + 1;  // of one row; an odd number of words: "
    "rows in different banks"
)
EACH = "if (each > 0) {"
BIAS_SLOPE = "if (n < Layer<0, LAYERS - 1>::OUT) of[j] = sum;"
SLOPES = "slopes.two(m, k) = pair(k < USED ? results[k] : 0.0f, k + 1 < USED ? results[k + 1] : 0.0f);"
BY_MATRIX_UNITS = {
    (RESIDENT, LOSS, LOSS.replace("+ of", "- of")): FINITE,
    (RESIDENT, LOSS, LOSS.replace("- of", "+ of")): FINITE,
    (RESIDENT, LOSS, LOSS.replace("sums[2]", "sums[(2 + 1)]")): FINITE,
    (RESIDENT, TOO_FAR, TOO_FAR.replace("inverse >", "inverse >=")): "no mean is the limit exactly",
    (RESIDENT, METRIC, METRIC.replace("sums[k <", "sums[k <=")): "where they are equal the norm is taken instead",
    (TOWER_GRADIENT, ENTRY, ENTRY.replace("ROWS * OBS %", "ROWS + OBS %")): SPEED,
    (
        TOWER_GRADIENT,
        THERE,
        "row[k].load(call, Place(call, memory.row[m]));",
    ): "nothing is made of what is loaded of no row",
    (
        TOWER_GRADIENT,
        REPORTS,
        REPORTS.replace("<", "<="),
    ): "one number more is added up behind the others, and nobody reads it",
    (
        TOWER_GRADIENT,
        ENTRIES,
        ENTRIES.replace(": 1]", ": (1 + 1)]"),
    ): "takes more room than is needed, and nothing reads it",
    (
        "learn/tower_gradient.cuh",
        PUT,
        PUT.replace(": 0]", ": (0 + 1)]"),
    ): "of entries not loaded ahead none is read there",
    (LAYERS, ACTIVATE, ACTIVATE.replace("<", "<=")): ZERO,
    (UNITS, LOAD, "load(turn);"): SPEED,
    (UNITS, LOAD, LOAD.replace(">", ">=")): SPEED,
    (SLABS, COPY, COPY.replace("k < 8", "k <= 8")): ONE_MORE,
    (SLABS, COPY, COPY.replace("8;", "(8 + 1);")): ONE_MORE,
    (SLABS, COPY, COPY.replace("(u16)0", "(u16)(0 + 1)")): TINY,
    (WIDE_FORWARD, LEFT, LEFT.replace("<", "<=")): SAME,
    (WIDE_FORWARD, TURN, TURN.replace("team.sync()", "")): BESIDE,
    (WIDE_FORWARD, TURN, TURN.replace("team.sync();  ", "")): BESIDE,
    (SLABS, COPY_FLOAT, COPY_FLOAT.replace("0.0f", "(0.0f * 1.5f + 0.25f)")): NOBODYS,
    (SUMS, "end_slab();", ""): AT_ONCE,
    (WIDE_GRADIENT, TOWER, TOWER.replace("==", "!=")): TURNED,
    (GROUP_TOWER, AWAITED, AWAITED.replace("team.sync()", "")): AT_ONCE,
    (GROUP_TOWER, "});\nteam.sync();", ";"): AT_ONCE,
    (GROUPS, "});\nteam.sync();", ";"): AT_ONCE,
    (GROUPS, "await_products();\nteam.sync();", ";"): AT_ONCE,
    (
        RESIDENT,
        NORM,
        NORM.replace("norm + 1e-6f", "norm - 1e-6f"),
    ): "a norm is off by more than that where sums differ in order",
    (RESIDENT, OWN_REPORTS, OWN_REPORTS.replace("<", "<=")): "no number of a report lies so far behind",
    (GROUP_RESIDENT, "await_products();\nteam.sync();", ";"): AT_ONCE,
    (GROUP_RESIDENT, BIAS_SLOPE, "of[j] = sum;"): "the gradient of a column behind the last output is 0",
    (GROUP_TOWER, "int sum = 0;", "int sum = 1;"): ANYWHERE,
    (BFLOAT, SECOND, SECOND.replace("0xffff0000u", "(0xffff0000u + 1)")): BELOW_ROUNDING,
    (TENSOR, RESULTS, RESULTS.replace("+ 1;", "+ (1 + 1);")): "a CPU's memory has no banks: only a GPU reads slower so",
    (TILE, EACH, EACH.replace("> 0", "> (0 + 1)")): SPEED,  # chunks of one row each are found by halving, too
    (
        TILE,
        SLOPES,
        SLOPES.replace("k + 1 <", "k - 1 <"),
    ): "behind the last output stands one of weights 0, which is 0",
    (TILE, SLOPES, SLOPES.replace("+ 1 <", "+ 1 <=")): "behind the last output stands one of weights 0, which is 0",
}
