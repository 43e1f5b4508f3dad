"""Mutants of what a network computes that no test can see: part of survivors.py."""

FORWARD, WIDE = "learn/forward.cu", "learn/wide.cuh"
NEURON, LAYERS, NETWORK, MULTIPLY = (f"learn/{name}.cuh" for name in ("neuron", "layers", "network", "multiply"))
SAME = "the two are the same number where they are equal"
ROOM = "takes more room than is needed, and nothing reads it"
ZERO = "either way a zero is what leaves"
BEHIND_ALL = "what is before the first layer behind the last tower is all there is, whatever layer is named"
RECTIFIED = "if constexpr (RELU) return x < 0.0f ? 0.0f : x;  // keeps NaN"
LEFT = "const int left = call.rows - first, rows = left < TILE ? left : TILE;"
COPIES = "alignas(16) float copies[NEAR_COPIES ? FORWARD_FLOATS : 1];"
AGAIN = "team.sync();  // its memory is written again"
INPUTS = "observations come next, which nobody reads then, and the sync behind them is ahead of all outputs"
TOWERS = "for (int t = 0; t < TOWERS; ++t) {"
BACKWARD = "static constexpr int BACKWARD_BEFORE = before(FORWARD_COPIES, TOWERS, 0) + before(BACKWARD_COPIES, T, L);"
TILE_ROWS = "const int each = rows * columns / members, wanted = each >= 32 ? 8 : each >= 16 ? 4 : each >= 8 ? 2 : 1;"
TILE_COLUMNS = "return columns % 8 == 0 && rows * columns / members >= 64 ? 8 : 4;"
TILING = "makes tiles of another size, with the same bits"
ALL = "constexpr int FORWARD_FRAGMENTS = fragments_before(true, TOWERS, 0), FRAGMENTS = fragments_before(false, TOWERS, 0);"
FORWARD_ALL, BACKWARD_ALL = (ALL.replace(f"{way}, TOWERS, 0", f"{way}, TOWERS, (0 + 1)") for way in ("true", "false"))
MOST = "constexpr int ACROSS = OBS / PIECE, PIECES = ROWS * ACROSS, OWN = own_count(PIECES), MOST = 24 / PIECE;"
TILES = "for (int first = share * TILE; first < call.rows; first += call.shares * TILE) {"
SHARERS = "constexpr int SHARERS = TEAM == 1 || OBS <= 8 ? 1 : OBS;"
STRIPS = "for (int strip : after(team, TAKEN + (L > 0) * tiles_of(TILE, fours(Here::IN), MEMBERS)).each(BIASES)) {"
TURNED = "turned.rank = (team.rank + TEAM - taken % TEAM) % TEAM;"
TAKEN = "return (rows + high - 1) / high * (columns / wide);"
OTHERS = "another member of the team does the same work"
FULL = "UNROLL_TIMES(2) for (k = STEP; k + STEP <= depth; k += STEP) {"
ENOUGH = "if (depth >= STEP) {"
ONE_BY_ONE = "the last products are added one by one instead of four at once, in the same order"
BY_NETWORKS = {
    (FORWARD, TILES, TILES.replace("first <", "first <=")): "takes a tile without rows, of which nothing leaves",
    (NETWORK, SHARERS, SHARERS.replace("<=", "<")): "chooses the faster of two ways with the same results",
    (NETWORK, STRIPS, STRIPS.replace("L >", "L >=")): OTHERS,
    (NETWORK, TURNED, TURNED.replace("-", "+")): OTHERS,
    (MULTIPLY, TAKEN, TAKEN.replace("- 1", "+ 1")): OTHERS,
    (MULTIPLY, FULL, FULL.replace("<=", "<")): ONE_BY_ONE,
    (MULTIPLY, ENOUGH, ENOUGH.replace(">=", ">")): ONE_BY_ONE,
    (NEURON, RECTIFIED, RECTIFIED.replace("<", "<=")): ZERO,
    (FORWARD, LEFT, LEFT.replace("<", "<=")): SAME,
    (FORWARD, COPIES, COPIES.replace(": 1", ": (1 + 1)")): ROOM,
    **{(FORWARD, AGAIN, AGAIN.replace("team.sync();", left).strip()): INPUTS for left in (";", "")},
    (LAYERS, TOWERS, TOWERS.replace("<", "<=")): BEHIND_ALL,
    (LAYERS, BACKWARD, BACKWARD.replace("0)", "(0 + 1))")): BEHIND_ALL,
    (NETWORK, "int most = 0;", "int most = 1;"): ROOM,
    (MULTIPLY, TILE_ROWS, TILE_ROWS.replace("*", "+")): TILING,
    (MULTIPLY, TILE_COLUMNS, TILE_COLUMNS.replace("/", "*")): TILING,
    (WIDE, ALL, FORWARD_ALL): BEHIND_ALL,
    (WIDE, ALL, BACKWARD_ALL): BEHIND_ALL,
    (WIDE, MOST, MOST.replace("24 /", "24 *")): "loads more numbers before the first is stored, of the same rows",
}
