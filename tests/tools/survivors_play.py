"""Mutants of forward passes, of policies that play and of what trains them that no test can see: part of survivors.py."""

SPEED = "does more work than is needed, with the same result"
ROOM = "takes more room than is needed, and nothing reads it"
SAME = "the two are the same number where they are equal"
NOBODYS = "rows that nobody asks for may hold anything"
ONE_LANE = "on a CPU a warp is one thread, whose number is 0"
FORWARD, WARPS, WARP_ROWS = "learn/tensor_forward.cu", "learn/warp_forward.cu", "learn/warp_rows.cuh"
AGAIN = "team.sync();  // its memory is written again"
BEFORE_RESULTS = (
    "the critic's weights and rows, which come next, end before the results of the actor, which has no fewer"
)
TILES = "for (int first = share * ROWS; first < about.rows; first += about.shares * ROWS) {"
LEFT = "const int left = about.rows - first, rows = left < ROWS ? left : ROWS;"
ENTRY = "entry = m < rows ? seen(observation(about, first + m)[d], about.center, about.scale, d) : 0.0f;"
RESULTS = (
    "constexpr int RESULTS = results_of_row(0) > results_of_row(TOWERS - 1) "
    "? results_of_row(0) : results_of_row(TOWERS - 1);"
)
LANES = "const int warp = team.rank / ROW_LANES, lane = team.rank % ROW_LANES, stride = about.shares * WARPS * ROWS;"
ANY_LEFT = "if (first < about.rows) {"
OWN_FIRST = "int first = (share * WARPS + warp) * ROWS;"
RESULT = "if (spot.n < Here::OUT) own.results_of(spot.m)[spot.n] = c + biases[spot.n];"
PAIRS = "u32 of[ROWS][K / 2];"
FINISH = "for (int n = 0; n < N; n += 2) finish(Spot{m, n, 0, 0, 0}, sum[n], sum[n + 1]);"
PLAY, PERCEPTRON, MATRICES = (f"play/{name}.cuh" for name in ("play", "perceptron", "tensor"))
FASTER = "chooses the faster of two ways with the same results"
ALL_STEP = "on a CPU every thread of a crew steps an environment, of which the crew has one"
ANY = "static constexpr bool ANY = OWN <= FEW_OWN && !PolicyOf<Kind>::Network::GAUSSIAN;"
SLOT = "const int e = first + (mine ? slot : 0);"
OUTPUTS = "static constexpr int ROWS = Tile<Network>::ROWS, OUTPUTS = First::OUT + Last::OUT * (Network::TOWERS - 1);"
AT_ONCE = "static constexpr int AT_ONCE = DOWN * ACROSS <= 4 ? 16 : FEW ? 8 : 4;  // numbers of a row"
LOADED = "UNROLL for (int k = 0; k < Part::AT_ONCE; ++k) {"
NEXT = "if constexpr (GROUPS > 0 && Part::FEW) {  // what is added next is on its way while this is added"
ODD = "alignas(16) float odd[TOWERS][LAYERS > 1 ? ROWS * ODD : 4];"
ZEROS = "more zeros are added, which change no sum"
PADDED = "constexpr int padded(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }"
OUT = "static constexpr int OUT = padded(FIRST > LAST ? FIRST : LAST) + 1;"
BEGIN = (
    "for (int d = m < Tile<Network>::ROWS ? Network::OBS : 0; d < padded(Network::OBS); ++d) "
    "tile.observation(m)[d] = 0.0f;"
)
LAST = "Last last{-1, 0.0f, false};"
LEAVING = "if (left) forget_rows(call, row, t + 1, future.end);"
ADVANTAGES, EPISODES, GAUSSIAN = (f"train/{name}.cu" for name in ("advantages", "episodes", "gaussian"))
STEPS = "for (int end = call.steps; end > 0; end -= AT_ONCE) {"
FLAGS = "for (int first = 0; first < call.steps; first += AT_ONCE) {"
FEW_STEPS = "if (call.steps <= FEW_AT_ONCE) estimate_row<FEW_AT_ONCE, PAUSES>(call, row);"
COUNT = "const int first = e * ENVS, left = call.num_envs - first, count = left < ENVS ? left : ENVS;"
ENDED = "if (ended > 0 && team.leader()) atomic_add(call.count, (double)ended);"
NOISE = "if (head % 4 == 0) n = normals(random, call.first_agent + i, head / 4);"
HALF = "while (half < 15 && (1 << 2 * half) < n) half += 1;"
FOUR = "for (int k = 0; k < STRIDE; ++k) four.of[k] = start + k < size ? values[k] : 0.0f;"
CLAMPED = "call.action[at] = policy::into_box<Space>(math::clamp(wanted, -1.0f, 1.0f), head);"
PLAYED = {
    (
        "train/finite.cu",
        FOUR,
        FOUR.replace("0.0f", "(0.0f * 1.5f + 0.25f)"),
    ): "any number that is finite stands for none",
    (
        GAUSSIAN,
        CLAMPED,
        CLAMPED.replace("wanted, -1.0f", "-1.0f, wanted"),
    ): "the greater of the two is the same, whichever is first, but for what is no number",
    (PLAY, "}, batch.rows);\nteam.sync();", ";"): "all threads of a crew, and so of a team, sync before they go on",
    (PLAY, ANY, ANY.replace("&&", "||")): SPEED,
    (PLAY, ANY, ANY.replace("<=", "<")): FASTER,
    (PLAY, SLOT, SLOT.replace("0", "(0 + 1)")): ALL_STEP,
    (PLAY, "if (mine) phases.load();", "phases.load();"): ALL_STEP,
    (PERCEPTRON, OUTPUTS, OUTPUTS.replace("TOWERS - 1", "TOWERS + 1")): FASTER,
    (PERCEPTRON, AT_ONCE, AT_ONCE.replace("<=", "<")): FASTER,
    (PERCEPTRON, NEXT, NEXT.replace("&&", "||")): "loads before it adds, or loads numbers of the tile that nobody adds",
    (
        PERCEPTRON,
        f"Factors<Part> some;\n{LOADED}",
        LOADED.replace("<", "<="),
    ): "the one too many is written to where the first rows come next, before these are, and read from what follows a layer",
    (PERCEPTRON, ODD, ODD.replace("LAYERS >", "LAYERS >=")): ROOM,
    (MATRICES, PADDED, PADDED.replace("- 1", "+ 1")): ZEROS,
    (
        MATRICES,
        "int sum = 0;",
        "int sum = 1;",
    ): "on a CPU a matrix may begin anywhere; a GPU wants whole pieces of 16 bytes",
    (MATRICES, OUT, OUT.replace(">", ">=")): SAME,
    (
        MATRICES,
        BEGIN,
        BEGIN.replace("d < ", "d <= "),
    ): "behind each row there is room that keeps rows in different banks, and that nothing reads",
    (MATRICES, BEGIN, BEGIN.replace("m < ", "m <= ")): NOBODYS,
    (
        MATRICES,
        "if (n + 1 < OUT) to[1] = d;",
        "to[1] = d;",
    ): "a row has room for its padded columns, which nothing reads",
    (ADVANTAGES, LAST, LAST.replace("-1", "-(1 + 1)")): "any negative step is none",
    (ADVANTAGES, LEAVING, LEAVING.replace("t + 1", "t")): "the weight of step t itself is written next",
    (ADVANTAGES, STEPS, STEPS.replace("end >", "end >=")): SPEED,
    (ADVANTAGES, FLAGS, FLAGS.replace("<", "<=")): SPEED,
    (ADVANTAGES, FEW_STEPS, FEW_STEPS.replace("<=", "<")): FASTER,
    (EPISODES, COUNT, COUNT.replace("left <", "left <=")): SAME,
    (
        EPISODES,
        COUNT,
        COUNT.replace("- first", "+ first"),
    ): "a team of fewer environments than it has room for looks at some that there are not, which have ended no episode",
    (EPISODES, ENDED, ENDED.replace(">", ">=")): SPEED,
    (GAUSSIAN, NOISE, NOISE.replace("if (head % 4 == 0) ", "")): SPEED,
    (
        "train/cipher.cuh",
        HALF,
        HALF.replace("15", "(15 + 1)"),
    ): "4^15 is the greatest size, for which 15 bits are enough",
    (FORWARD, TILES, TILES.replace("<", "<=")): SPEED,
    **{(FORWARD, AGAIN, AGAIN.replace("team.sync();", left).strip()): BEFORE_RESULTS for left in (";", "")},
    (FORWARD, LEFT, LEFT.replace("<", "<=")): SAME,
    (FORWARD, ENTRY, ENTRY.replace("0.0f", "(0.0f * 1.5f + 0.25f)")): NOBODYS,
    (WARPS, RESULTS, RESULTS.replace(">", ">=")): SAME,
    (WARPS, LANES, LANES.replace("/", "*")): ONE_LANE,
    (WARPS, OWN_FIRST, OWN_FIRST.replace("+", "-")): ONE_LANE,
    (
        WARPS,
        ANY_LEFT,
        ANY_LEFT.replace("<", "<="),
    ): "behind the last row no entry is there, so that none is copied, nor used before the loop ends",
    (WARPS, "end_slab();", ""): "on a CPU nothing is on its way: what is copied is there at once",
    (
        WARPS,
        RESULT,
        RESULT.replace("<", "<="),
    ): "an even number of results has one place more than it needs, which nothing reads",
    (WARP_ROWS, PAIRS, PAIRS.replace("/", "*")): ROOM,
    (
        WARP_ROWS,
        FINISH,
        FINISH.replace("n, 0, 0, 0}", "n, 0, (0 + 1), 0}"),
    ): "where a GPU has a result in its registers, which a CPU's one thread does not ask",
}
