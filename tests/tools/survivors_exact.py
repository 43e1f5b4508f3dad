"""Mutants of the learner's exact kernels that no test can see: part of survivors.py."""

UPDATE, SUMS, GRADIENT, LOSS_OF_ROW = (f"learn/{name}" for name in ("update.cu", "sums.cuh", "gradient.cu", "loss.cuh"))
ADAM = "learn/adam.cuh"
MINIBATCHES, DRAWN = "learn/minibatches.cuh", "learn/minibatches.cu"
SPEED = "does more work than is needed, with the same result"
UNUSED = "the norm itself is reported there, not this number"
NO_NUMBER = "one turn more, whose number is behind all that are reported and all tensors"
CHANGE = (
    "if (k != call.norm_at) change[own] = k == call.reported ? 1.0f : sums[k < call.norm_at ? k : k - 1] * inverse;"
)
TURNS = "UNROLL for (int own = 0; own < OWN; ++own) {"
SAME = "the two are the same number where they are equal"
NONE_LEFT = "where as many chains are used as half of them, none is added to another"
OWN_WEIGHTS = "each member copies those weights of the row that it has written itself"
READ = "who goes on writes the chunk's sums after the syncs of its own forward pass, which all have to reach"
ALIKE = "all members have the same sum, and write it"
TURNS_OF_ROW = "adds up the numbers of a chain in the same order, however many of them are on their way at once"
FOUND = "every row is one of a group's, so that the last group ends the search"
HALF = "if (half >= used) continue;"
HALVES = "for (int c : team.each(used < 2 * half ? used - half : half)) of[c] += of[c + half];"
AT_A_TIME = (
    "constexpr int SIDE = SIDE_FLOATS == 1 ? 4 : LANES, ACROSS = LANES / SIDE, AT_ONCE = SIDE_FLOATS == 1 ? 8 : 1;"
)
PIECES_AT_ONCE = "adds up the same pieces in the same order, however many of them are on their way at once"
MOST_PARTS = "constexpr int MOST_PARTS = 32;"
FOLLOWED = "if (made.step + 1.0f != step) made = {0.0f, 0.0f, 0.0f};"
AGAIN = "corrections are followed again from the beginning, which gives the same bits"
SETTLED = "if (made.first == before.first && made.second == before.second) made.step = step;  // they change no more"
ALL_EQUAL = "steps so far are equal for all tensors, of which there are two at least"
FLAG = "it is 0 or 1"
LAST_LOADS = "if (last) outlook.load(call);"
LAST_FOLLOWS = "if (last) outlook.made = corrections_of(outlook.made, outlook.step);"
BEGIN = "const int begin = share(part, call.pieces, call.parts), end = share(part + 1, call.pieces, call.parts);"
FROM = "const int from = share(e, ROWS_OF_WEIGHTS, call.shares), until = share(e + 1, ROWS_OF_WEIGHTS, call.shares);"
OF_PART = "for (int first = begin; first < end; first += AT_ONCE) {"
VERDICT = "if (last && team.leader()) call.prospect->verdict = SKIPPED;"
NEXT = (
    "says when the next launch may begin, which awaits this one's end before it reads anything: a matter of speed on a GPU, "
    "and nothing on a CPU"
)
AWAITED = "a CPU's launch has ended when the next one begins, so that only a GPU can tell"
UNCOPIED = "if (call.copies == nullptr) release_next();"
SCALED = "return {verdict, norm, scale < 1.0f ? scale : 1.0f, prospect.rate, prospect.root};"
LOADS = "const bool loads = TEAM > 1 && team.rank < first.columns;"
AHEAD = "if (TEAM > 1 && r == from && k == team.rank) {"
FIRST_REPORTS = "if (e == 0) report.load(call, team);"
COPIED = "if (call.copies == nullptr) continue;"
SQUARES = "if (team.leader()) call.squares[chunk.place] = squares;"
AT_ONCE = "constexpr int AT_ONCE = SIDE_FLOATS > 1 || SHUFFLED ? 1 : 16;"
GROUPS = "for (; group < AGENT_GROUPS - 1; ++group) {"
LEAST = "constexpr int at_least_one(int n) { return n > 0 ? n : 1; }"
OBJECTIVE = "objective = plain > clipped ? clipped : plain;  // keeps NaN"
USED = "const int used = chains_of(STRIPS - 1);"
LOOKED = "for (int g = 0; g < AGENT_GROUPS - 1; ++g) {"
RUN_OF = "return {before + (t * call.num_envs + first) * agents - begin, begin + envs * agents};"
PART_OF = "DEVICE int part(int m, int n) const { return share(m, n, minibatches); }"
STATISTICS, FIRST_STEP = "learn/statistics.cu", "first_step = share(slice, call.steps, call.slices);"
INITIAL = "learn/initial.cu"
MEAN_OF_ROWS = "return (float)(sum / (double)(rows > 0 ? rows : 1));"
LANE = "for (int j = 0; j < LANES; ++j) lane[j] = math::fma(a[i + j], b[i + j], lane[j]);"
PRODUCT = "the same product of the same numbers, which 32 bits hold where rows do not fill gigabytes"
NO_ROWS = "of no numbers each of the two chains is 0, and so is their sum"
FROM_TWICE = "for (int half = CHAINS * 2; half > 0; half /= 2) {"
CHAINS_OF = "DEVICE int chains_of(const int n) { return n < 1 ? 1 : n < CHAINS ? n : CHAINS; }"
ERROR = "error = near * near > error ? near * near : error;"
CHAINS_OF_CHUNK = "DEVICE int chains() const { return chains_of(until - from); }"
FIRST_ROW = "for (int first = chunk.from + c; first < chunk.until; first += AT_ONCE * CHAINS) {"
DRAWS = "if (team.rank < used) {  // who has no row does not make the keys"
RUN = "Run run{0, 0};"
NEXT_RUN = "if (SHUFFLED || at >= run.end) run = run_of_block(call, chunk.block, at);"
AT_LEAST = "const float least = (float)(count < 1 ? 1 : count);"
FOUND_MEAN = "call.moments[e] = {1.0f / least, sum / least, 1.0f, (float)count};"
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
    (DRAWN, AT_ONCE, AT_ONCE.replace("16", "(16 + 1)")): TURNS_OF_ROW,
    (DRAWN, AT_ONCE, AT_ONCE.replace("> 1", "> (1 + 1)")): "a vector has 8 numbers or 16, a GPU's thread one",
    (DRAWN, "from = call.part(minibatch, count);", "from = call.part(count, minibatch);"): PRODUCT,
    (DRAWN, DRAWS, DRAWS.replace("<", "<=")): SPEED,
    (DRAWN, RUN, RUN.replace("{0", "{(0 + 1)")): "it ends at 0, so that another one takes its place before it is read",
    (DRAWN, FIRST_ROW, FIRST_ROW.replace("<", "<=")): "one turn more, of no rows",
    (DRAWN, NEXT_RUN, "run = run_of_block(call, chunk.block, at);"): SPEED,
    (DRAWN, AT_LEAST, AT_LEAST.replace("<", "<=")): SAME,
    (DRAWN, AT_LEAST, AT_LEAST.replace("< 1", "< (1 + 1)")): SAME,
    (
        DRAWN,
        FOUND_MEAN,
        FOUND_MEAN.replace(", 1.0f,", ", (1.0f * 1.5f + 0.25f),"),
    ): "the deviation is written there next, or nobody divides by it",
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
    (MINIBATCHES, GROUPS, GROUPS.replace("<", "<=")): FOUND,
    (MINIBATCHES, RUN_OF, RUN_OF.replace("begin + envs", "begin - envs")): SPEED,
    (MINIBATCHES, LOOKED, LOOKED.replace("<", "<=")): FOUND,
    (MINIBATCHES, LOOKED, LOOKED.replace("- 1", "+ 1")): FOUND,
    (MINIBATCHES, PART_OF, PART_OF.replace("(m, n, m", "(n, m, m")): PRODUCT,
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
    **{(UPDATE, f"{COPIED}\nteam.sync();", left): OWN_WEIGHTS for left in (";", "")},
    (UPDATE, MOST_PARTS, MOST_PARTS.replace("32", "(32 + 1)")): "takes more room than is needed, and nothing reads it",
    (UPDATE, AT_A_TIME, AT_A_TIME.replace("== 1 ? 8", "!= 1 ? 8")): PIECES_AT_ONCE,
    (UPDATE, AT_A_TIME, AT_A_TIME.replace("== 1 ? 8", "== (1 + 1) ? 8")): PIECES_AT_ONCE,
    (UPDATE, AT_A_TIME, AT_A_TIME.replace("8", "(8 + 1)")): PIECES_AT_ONCE,
    (UPDATE, AT_A_TIME, AT_A_TIME.replace(": 1;", ": (1 + 1);")): PIECES_AT_ONCE,
    (ADAM, FOLLOWED, FOLLOWED.replace("+ 1.0f", "- 1.0f")): AGAIN,
    (ADAM, FOLLOWED, FOLLOWED.replace("1.0f", "(1.0f * 1.5f + 0.25f)")): AGAIN,
    (ADAM, FOLLOWED, "made = {0.0f, 0.0f, 0.0f};"): AGAIN,
    (UPDATE, "made = *call.corrections;", ""): AGAIN,
    (ADAM, SETTLED, SETTLED.replace("first == before", "first != before")): SPEED,
    (UPDATE, "step = call.step[0] + 1.0f;", "step = call.step[(0 + 1)] + 1.0f;"): ALL_EQUAL,
    (UPDATE, "steps = call.step[0];", "steps = call.step[(0 + 1)];"): ALL_EQUAL,
    (
        UPDATE,
        "const bool sound = is_finite(loss) && !(bad > 0.0f);",
        "const bool sound = is_finite(loss) && !(bad > (0.0f * 1.5f + 0.25f));",
    ): FLAG,
    (UPDATE, "if (skip > 0.0f) {", "if (skip > (0.0f * 1.5f + 0.25f)) {"): FLAG,
    (UPDATE, "release_next();", ""): NEXT,
    (UPDATE, UNCOPIED, "release_next();"): NEXT,
    (UPDATE, UNCOPIED, UNCOPIED.replace("==", "!=")): NEXT,
    (UPDATE, "await_previous();", ""): AWAITED,
    (UPDATE, LAST_LOADS, "outlook.load(call);"): SPEED,
    (UPDATE, LAST_FOLLOWS, LAST_FOLLOWS.replace("if (last) ", "")): SPEED,
    (UPDATE, BEGIN, BEGIN.replace("(part, call.pieces", "(call.pieces, part")): PRODUCT,
    (UPDATE, FROM, FROM.replace("(e, ROWS_OF_WEIGHTS", "(ROWS_OF_WEIGHTS, e")): PRODUCT,
    (UPDATE, OF_PART, OF_PART.replace("<", "<=")): "one turn more, of no pieces",
    (UPDATE, VERDICT, VERDICT.replace("&&", "||")): "whoever writes it writes the same",
    (UPDATE, SCALED, SCALED.replace("<", "<=")): SAME,
    (UPDATE, LOADS, LOADS.replace(">", ">=")): "a team of one loads ahead what it loads again",
    (UPDATE, AHEAD, AHEAD.replace("> 1", "> (1 + 1)")): "a team of two loads again what it has loaded ahead",
    (UPDATE, FIRST_REPORTS, "report.load(call, team);"): SPEED,
    (UPDATE, CHANGE, CHANGE.replace("if (k != call.norm_at) ", "")): UNUSED,
    (UPDATE, CHANGE, CHANGE.replace("k < call", "k <= call")): UNUSED,
    (UPDATE, TURNS, TURNS.replace("<", "<=")): NO_NUMBER,
    (STATISTICS, MEAN_OF_ROWS, MEAN_OF_ROWS.replace(": 1", ": (1 + 1)")): "the sum of no rows is 0",
    (STATISTICS, FIRST_STEP, FIRST_STEP.replace("slice, call.steps", "call.steps, slice")): PRODUCT,
    (
        INITIAL,
        LANE,
        LANE.replace("<", "<="),
    ): "one chain more, behind all that are added up: a fault without a consequence",
}
