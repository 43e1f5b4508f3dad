"""Mutants of forward passes, of policies that play and of what trains them that no test can see: part of survivors.py."""

SPEED = "does more work than is needed, with the same result"
ROOM = "takes more room than is needed, and nothing reads it"
SAME = "the two are the same number where they are equal"
NOBODYS = "rows that nobody asks for may hold anything"
ONE_LANE = "on a CPU a warp is one thread, whose number is 0"
FORWARD, WARPS, WARP_ROWS = "learn/tensor_forward.cu", "learn/warp_forward.cu", "learn/warp_rows.cuh"
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
PLAYED = {
    (FORWARD, TILES, TILES.replace("<", "<=")): SPEED,
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
