"""Mutants of the shared kernels that no test can see, each with the reason: (file, the line before, the line after) -> why.

Lines are named by their text, not their number. `python tests/tools/mutation.py --shared` says which survivors are listed here.
"""

from survivors_exact import EXACT as BY_EXACT_KERNELS
from survivors_network import BY_NETWORKS
from survivors_play import PLAYED
from survivors_tensor import BY_MATRIX_UNITS

SPEED = "does more work than is needed, with the same result"
FINITE, SAMPLED = "train/finite.cu", "train/sample_choices.cuh"
CHOICES_OF, BOXES = (f"train/{name}.cuh" for name in ("choices", "boxes"))
CIPHER = "train/cipher.cuh"
WHOLE = "if (start + STRIDE <= size) {"
STRIDE = "constexpr int STRIDE = 4;  // numbers per element of the launch: one 16-byte read"
CARRIED, REPORTED = "train/carry.cu", "train/report.cu"
OF_PIECE = "UNROLL for (int k = 0; k < PIECE / SIZE; ++k) {"
CARRIES = (
    "if (!carry_words<u64>(to, from, bytes) && !carry_words<u32>(to, from, bytes)) carry_words<u8>(to, from, bytes);"
)
KEPT = "train/keep.cu"
KEEPS = "if (!keep_words<u64>(team, chunk) && !keep_words<u32>(team, chunk)) keep_words<u8>(team, chunk);"
IS_BAD = "if (*call.bad[k] > 0.0f) return false;"
REST = "const int bytes = left < PIECE ? (int)left : PIECE;"
LEAST_LENGTH = "if (team.leader()) call.numbers[1] = (double)least;"
LEAST_SO_FAR = "least = length < least ? length : least;"
HALF = "while (half < 15 && (1 << 2 * half) < n) half += 1;"
ENTROPY = "if (call.entropy != nullptr) entropy += choices.entropy();"
NORMALS = "if (head % 4 == 0) n = normals(random, agent, head / 4);"
BITS = "if (head % 4 == 0) bits = random.bits(agent, head / 4);"
PHASES = "drive/phases.cuh"
READ = "team.sync();  // all have read the clock"
AGAIN = "if (view == FINAL) team.sync();  // the near observation is written again"
LANES = "near_lanes = team.near_lanes();"
HELD = "if constexpr (TEAM == 1) hold(near_lanes);  // else each step asks for the thread's index again, just before its stores"
ON_A_GPU = "on a CPU there are no lanes, and `hold` does nothing"
LATER = "the clock is written after the sync that ends every observation, which whoever has not read it has not reached"
SYNCED = "what comes next reads the member's own words, or what was written before a sync that every way there passes"
STREAM = "Random{*batch.seed, (u32)(batch.first_env + e), clock.episode, 0u, RESET}, clock.elapsed, \\"
SKIPPED = "if (SMALL && view == FINAL && !to_final) return;"
COUNTED = "const Log counted = HAS_METRICS && over ? total(team, env.log) : Log{};"
SMALL = "on a CPU SMALL is false"
DRAWS = "whoever draws sets the step and the purpose first"
PLATFORM = "drive/platform.cuh"
BATCH = "drive/batch.cuh"
SPARE_WORDS = "constexpr int SPARE_WORDS = 0;"
NO_SPARE = "template <> struct Spare<0> {};"
INDICES, CPU = "drive/indices.cuh", "drive/backend/cpu_team.cuh"
COPY = "if (to != from) memcpy(to, from, 4 * (size_type)WORDS);"
OWN_TURNS = "UNROLL_OWN for (int k = 0; k < own_count(n); ++k)    \\"
SELECT = "UNROLL for (int k = 1; k < N; ++k) selected = k == i ? of[k] : selected;"
SIDE = "constexpr int side(int n) { return (n + SIDE_FLOATS - 1) / SIDE_FLOATS * SIDE_FLOATS; }"
LEAST = (
    "while (value < before "
    "&& !__atomic_compare_exchange_n(word, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}"
)
ROOM = "takes more room than is needed, and nothing reads it"
TURNS = "one turn more, which looks whether its index is one"
SIMD = "drive/simd.cuh"
LANE_WORDS = "u32 word[sizeof(T) / 4][LANES];"
WORDS = (
    "constexpr bool WORD_BY_WORD = Agent::OBS != 3 && (Agent::OBS & (Agent::OBS - 1)) != 0 && sizeof(LaneObs) % 4 == 0;"
)
BESIDE = (
    "constexpr bool SIDE_BY_SIDE = !Agent::MASKED && !Agent::LEAVES && !HAS_SHARED && !HAS_CACHE && STATE_NEAR "
    "&& sizeof(State) <= 128;"
)
HALF_WORDS = (
    "chooses the faster of two ways, but for an odd number of observations of 2 bytes, which none here has except 3"
)
FASTER = "chooses the faster of two ways with the same results"
GROUPS = "drive/groups.cuh"
OWN = "TEAM == 1 ? ROWS_NEAR && REGISTERS_HAVE_NO_INDEX && sizeof(KeptRows<Kind, own_count(Kind::COUNT)>) <= MOST_LOCAL_BYTES"
OWN_OF_TEAM = ": PACKED<Kind> && FEW_HEADS<Kind> && own_count(Kind::COUNT) <= FEW_OWN;"
FETCHED = "constexpr bool FETCHED = TEAM == 1 && ROWS_NEAR;"
BITS_WORD = "const u32 word = TEAM == 1 ? bits.word(word_of_four) : ((const u32*)&bits)[word_of_four];"
ENV = "drive/env.cuh"
WANTED = "int wanted = Random::below(word, allowed == 0 ? size : allowed);"
CHOICES = "for (int k = 0; k < size; ++k) {"
LAUNCH = "drive/backend/cpu_launch.cuh"
FIRST_ELEMENT = "if (e > first) Team{rank}.sync();  // one Workspace serves all elements, each of which has it alone"
OPEN = "rendezvous.open((u32)first + 1u);"
END = "end = last - first < BLOCK_ENVS ? last : first + BLOCK_ENVS;"
FLUSH = "FlushDenormals() { before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(before | 0x8040u); }"
RUN_BODY = "body(Team{0}, &work, e, end - e < LANES ? end - e : LANES, from, until);"
UNTIL = "until = steps - from < piece ? steps : from + piece;"
PART_OF_MEMBER = (
    "const i64 member = begin / count, first = begin - member * count, "
    "last = first + end - begin < count ? first + end - begin : count;"
)
CREW_STEPS = (
    "return run<1, Block>(begin, end, 1, 1, "
    "[&](const Team team, Block* const work, const int first, int, int, int) INLINED { \\"
)
FAULTS, CPU_FAULTS = "drive/faults.cuh", "drive/backend/cpu_faults.cuh"
FIRST_FAULT = "if (!__sync_bool_compare_and_swap(&fault.line, 0, line > 0 ? line : 1)) return;"
RACES, ENTRIES = "drive/backend/races.cuh", "drive/entries.cuh"
INSIDE = "return at >= 0 && at < (i64)sizeof(Part) ? at : -1;"
DIVIDED = (
    'extern "C" void __ubsan_handle_divrem_overflow(Place* at, u64 a, u64 b) '
    "{ __ubsan_handle_divrem_overflow_abort(at, a, b); }"
)
PIECE_END = "const size_type until = bytes - from < PIECE ? bytes : from + PIECE;"
PIECES = "for (size_type from = 0; from < bytes; from += PIECE) {"
COMPARED = "if (memcmp(near + from, before + from, until - from) == 0) continue;"
BYTES = "for (size_type at = from; at < until; ++at) {"
ADDED = "if (at < bytes) memcpy(before + at, near + at, size);"
WHAT = "strncpy(fault.what, what, sizeof(fault.what) - 1);"
MEMORY = "static char memory[1 << 16];"
MATH = "drive/math.cuh"
ANGLE = "return (r >= -PI) & (r < PI) ? r : outside;"
TURN = "r = r < 0.0f ? r + TWO_PI : r;"
TANH = "return copy_sign(magnitude >= 0.55f ? outer : inner, x);"
FITS = "const bool fits = (x >= -2147483648.0f) & (x < 2147483648.0f);  // & rather than &&: no branch"
LIMIT = "const float limit = (x == 0.0f) == (y > 0.0f) ? 0.0f : infinity();"
BELOW = "const float below = e > 120.0f ? 120.0f : e;"
IN_RANGE = "const bool finite = (x > 0.0f) & (x < infinity()) & (abs(e) < 80.0f);"
NOTHING = "const float r = abs(e) < 1e-30f ? 0.0f : fma(n, 1.90465421e-9f, fma(n, -0.693147182f, e)) + e_low;"
EVERY_FLOAT = "no float has another result: all 2^32 were tried"
SAME = "the two are the same number where they are equal"
HALVES = "drive/halves.cuh"
ODD_HALF = "if constexpr (COUNT * sizeof(obs_t) % 4 != 0) {"
NEIGHBOURS = "drive/neighbours.cuh"
SEARCHES = "typename Choose<(A > 256), Cells<A, K>, typename Choose<(A > 8), AllPairs<A, K>, Few<A, K>>::type>::type;"
QUICK = "if (!(reach > 0.0f)) return false;"
PLACES = "constexpr int scanned(int n) { return (n + SCAN - 1) / SCAN * SCAN; }"
DRIFT = "this->search(env.team, env.cache.near, 2.001f * speed, visit);  // of two points, and rounding"
THREE_ROWS = "const Places near = places(row, math::min(row + 2, bottom), left, right);"
PER_SQUARE = (
    "static constexpr float PER_SQUARE = 0.36f * K > 2.0f ? 0.36f * K : 2.0f;  // points of WIDE cells, on average"
)
TAKEN = "if (!found.take(own, *this, p)) thorough(found, p);"
OF_ONE = "Found<K> found(team, p < A ? id[p] : 0, p < A, p < count);"
BOUND = "words.clear(hint > 0.0f ? math::min(hint * hint, 2.0f * side * side) : 2.0f * side * side);"
UNCLEARED = (
    "undefined: words that are not cleared may hold anything; some compilers' are in doubt then, and all is found in the "
    "slower way, with the same result"
)
ROWS = "drive/rows.cuh"
ROWS_ANY = "DEVICE bool rows_any(const Team team, bool mine) { return ROWS_STAGED ? team.warp_any(mine) : mine; }"
NEAREST = "drive/nearest.cuh"
NO_KEY = "Key least = ~(Key)0;"
LEAST_KEY = "least = key < least ? key : least;"
OFFER = "if (d < distance[K - 1]) insert_next(d, j);"
CLEAR = "for (int k = 0; k <= K; ++k) word[k] = F{} + NOBODY;"
LEAST_WORD = "word[0] = math::lesser(word[0], added);"
GREATER = "template <class F> DEVICE F greater(F a, F b) { return a > b ? a : b; }"
PART = "DEVICE F part() const { return 2.0f / parts; }"
FAR = "DEVICE bool far() const { return ((math::bits(word[K - 1]) - LEAST) >> ID_BITS) >= (u32)MOST; }"
SCALED = "const F part = (scaled < MOST ? scaled : F{} + MOST) + math::COUNT;"
PARTS = "parts = MOST / bound;"
DOUBT = "the order is in doubt more often, and then found in the slower way, with the same result"
EARLY = "return 0;"
DISCRETE = "DEVICE int read_discrete(int action, int size) { return math::clamp(action, 0, size - 1); }"
FITS_NOT = "return fits ? inside : x > 0.0f ? above : below;"
BOUNDED = "const float bounded = below < -120.0f ? -120.0f : below;  // keeps NaN"
GREATER_INT = "DEVICE int max(int a, int b) { return a > b ? a : b; }"
MOST = "static constexpr float MOST = (float)((1 << PART_BITS) - 1);  // what is as far as `bound` or further"
NO_LANES = "DEVICE u32 near_lanes() const { return 0; }"
LOOKED = "looked_at += near.count;"
TOO_FAR = "if (words.far()) return false;  // the hint is wrong, or it stands far outside the square"
ALL_CELLS = "if (left == 0 && right == columns - 1 && top == 0 && bottom == rows - 1) return false;"
NUMBER_OF_ROWS = "rows = math::clamp(math::to_int(math::sqrt((float)all / PER_SQUARE)), 1, MOST_ROWS);"
ITSELF = "if (p >= base && p < base + SCAN) near &= ~(1u << (p - base));"
REMEMBERED = "reach[found.i] = found.all() ? math::sqrt(found.furthest) + drift : 0.0f;"
NEARER = "scan(p, base, reach * reach, [&](float d, int q) { words.insert(words.of(d, (u32)q)); });"
FETCH = "if (from < until) fetch((size_type)from * batch.num_envs + e);"
EQUIVALENT = {
    **PLAYED,
    **BY_EXACT_KERNELS,
    **BY_NETWORKS,
    **BY_MATRIX_UNITS,
    (PHASES, FETCH, FETCH.replace("<", "<=")): "a launch that steps takes one step at least",
    (
        PHASES,
        FETCH,
        FETCH.replace("if (from < until) ", ""),
    ): "where a policy plays, nothing is given, and what is fetched is overwritten before a step reads it",
    (PHASES, "}\nteam.sync();", ";"): SYNCED,
    (PHASES, "DEVICE void store() {\nteam.sync();", ";"): SYNCED,
    (PHASES, COUNTED, COUNTED.replace("&&", "||")): SPEED,
    (PHASES, SKIPPED, SKIPPED.replace("==", "!=")): SMALL,
    (PHASES, "if (team.leader()) batch.clock[e] = clock;\nteam.sync();", ";"): SYNCED,
    (PHASES, READ, ";  // all have read the clock"): LATER,
    (
        PHASES,
        AGAIN,
        "if (view == FINAL) ;  // the near observation is written again",
    ): "a reset, which has a sync of its own, comes between",
    (PHASES, LANES, ""): ON_A_GPU,
    (PHASES, HELD, HELD.replace("==", "!=")): ON_A_GPU,
    (PHASES, HELD, HELD.replace("1)", "(1 + 1))")): ON_A_GPU,
    (PHASES, STREAM, STREAM.replace("0u", "(0u + 1)")): DRAWS,
    (PHASES, STREAM, STREAM.replace("RESET", "DYNAMICS")): DRAWS,
    (
        PHASES,
        SKIPPED,
        SKIPPED.replace("&&", "||", 1),
    ): "on a CPU SMALL is false and the loop begins where there is something",
    (BATCH, SPARE_WORDS, SPARE_WORDS.replace("0", "1")): ROOM,
    (BATCH, SPARE_WORDS, SPARE_WORDS.replace("0", "(0 + 1)")): ROOM,
    (BATCH, NO_SPARE, NO_SPARE.replace("0", "(0 + 1)")): "compilers for CPUs make an array of no words of it",
    (INDICES, SELECT, SELECT.replace("<", "<=")): "no index is N, so that nothing is read there",
    (INDICES, OWN_TURNS, OWN_TURNS.replace("<", "<=")): TURNS,
    (PLATFORM, SIDE, SIDE.replace("/", "*")): ROOM,
    (PLATFORM, SIDE, SIDE.replace("- 1", "+ 1")): ROOM,
    (CPU, NO_LANES, NO_LANES.replace("0", "(0 + 1)")): ON_A_GPU,
    (CPU, LEAST, LEAST.replace("<", "<=")): "stores a number that is there",
    (
        CPU,
        COPY,
        "memcpy(to, from, 4 * (size_type)WORDS);",
    ): "a place copied onto itself stays as it is, in every C library",
    (SIMD, LANE_WORDS, LANE_WORDS.replace("/", "*")): ROOM,
    (SIMD, WORDS, WORDS.replace("!= 3", "== 3")): FASTER,
    (SIMD, WORDS, WORDS.replace("OBS - 1", "OBS + 1")): FASTER,
    (SIMD, WORDS, WORDS.replace("% 4", "% (4 + 1)")): HALF_WORDS,
    (SIMD, WORDS, WORDS.replace("== 0;", "!= 0;")): HALF_WORDS,
    (SIMD, BESIDE, BESIDE.replace("<=", "<")): FASTER,
    (ENV, CHOICES, CHOICES.replace("<", "<=")): "returns before: as many choices are counted as are allowed",
    (ENV, EARLY, EARLY.replace("0", "(0 + 1)")): "never reached: as many choices are counted as are allowed",
    (
        ENV,
        DISCRETE,
        DISCRETE.replace("action, 0", "0, action"),
    ): "the greater of the two is the same, whichever is first",
    (
        ENV,
        WANTED,
        "int wanted = Random::below(allowed, word);",
    ): "the upper half of a product, whichever factor is first",
    (GROUPS, FETCHED, FETCHED.replace("==", "!=")): FASTER,
    (GROUPS, OWN, OWN.replace("==", "!=")): FASTER,
    (GROUPS, OWN, OWN.replace("== 1", "== (1 + 1)")): FASTER,
    (GROUPS, OWN, OWN.replace("? ROWS_NEAR", "? !ROWS_NEAR")): FASTER,
    (GROUPS, OWN, OWN.replace("&&", "||", 1)): FASTER,
    (GROUPS, OWN_OF_TEAM, OWN_OF_TEAM.replace("PACKED<Kind> &&", "PACKED<Kind> ||")): FASTER,
    (GROUPS, OWN_OF_TEAM, OWN_OF_TEAM.replace("FEW_HEADS<Kind> &&", "FEW_HEADS<Kind> ||")): FASTER,
    (GROUPS, OWN, OWN.replace("NO_INDEX &&", "NO_INDEX ||")): FASTER,
    (GROUPS, OWN, OWN.replace("<=", "<")): FASTER,
    (GROUPS, OWN_OF_TEAM, OWN_OF_TEAM.replace("<=", "<")): FASTER,
    (GROUPS, BITS_WORD, BITS_WORD.replace("==", "!=")): FASTER,
    (LAUNCH, FIRST_ELEMENT, FIRST_ELEMENT.replace(">", ">=")): "all members call one sync more, at the beginning",
    (LAUNCH, OPEN, OPEN.replace("+", "-")): "any seed shuffles the members",
    (LAUNCH, OPEN, OPEN.replace("1u", "(1u + 1)")): "any seed shuffles the members",
    (LAUNCH, FLUSH, FLUSH.replace("0x8040u", "(0x8040u + 1)")): "raises a flag that nobody reads, restored on leaving",
    (LAUNCH, RUN_BODY, RUN_BODY.replace("<", "<=")): SAME,
    (LAUNCH, END, END.replace("<", "<=")): "where the two are equal, so are both ends",
    (LAUNCH, UNTIL, UNTIL.replace("<", "<=")): "where the two are equal, so are both ends",
    (LAUNCH, PART_OF_MEMBER, PART_OF_MEMBER.replace("<", "<=")): SAME,
    (
        LAUNCH,
        CREW_STEPS,
        CREW_STEPS.replace("1, 1,", "1, (1 + 1),"),
    ): "one step is one piece, however many a piece may have",
    (
        "train/episodes.cu",
        "if (ended > 0 && team.leader()) atomic_add(call.count, (double)ended);\nteam.sync();",
        ";",
    ): "sum() of threads on a CPU has waited for all, which is not what it promises",
    (CARRIED, OF_PIECE, OF_PIECE.replace("k <", "k <=")): SPEED,
    (CARRIED, OF_PIECE, OF_PIECE.replace("/", "*")): SPEED,
    (CARRIED, CARRIES, CARRIES.replace("&&", "||")): SPEED,
    (CARRIED, REST, REST.replace("<", "<=")): "the same number either way",
    (KEPT, KEEPS, KEEPS.replace("&&", "||")): SPEED,
    (KEPT, IS_BAD, IS_BAD.replace("0.0f", "(0.0f * 1.5f + 0.25f)")): "it is 0 or 1",
    (REPORTED, LEAST_LENGTH, LEAST_LENGTH.replace("if (team.leader()) ", "")): "all members write the same",
    (REPORTED, LEAST_SO_FAR, LEAST_SO_FAR.replace("<", "<=")): SAME,
    (FINITE, WHOLE, WHOLE.replace("<=", "<")): SPEED,
    (FINITE, STRIDE, STRIDE.replace("= 4", "= (4 + 1)")): SPEED,
    (
        CIPHER,
        HALF,
        HALF.replace("half < 15", "half <= 15"),
    ): "at half = 15 the second condition is false for all sizes allowed",
    (SAMPLED, ENTROPY, "entropy += choices.entropy();"): SPEED,
    (CHOICES_OF, BITS, "bits = random.bits(agent, head / 4);"): SPEED,
    (BOXES, NORMALS, "n = normals(random, agent, head / 4);"): SPEED,
    (RACES, PIECE_END, PIECE_END.replace("<", "<=")): "where the two are equal, so are both ends",
    (
        ENTRIES,
        INSIDE,
        INSIDE.replace("at <", "at <="),
    ): "what lies right behind is named afterwards, or is no environment's",
    (CPU_FAULTS, DIVIDED, DIVIDED.replace("(at, a, b)", "(at, b, a)")): "nobody asks for the two numbers",
    (RACES, PIECES, PIECES.replace("<", "<=")): "one piece more, of no bytes",
    (RACES, COMPARED, COMPARED.replace("-", "+")): "compares more, and then looks at the same bytes",
    (RACES, BYTES, BYTES.replace("<", "<=")): "one byte more, of the next piece or of nobody",
    (RACES, ADDED, ADDED.replace("<", "<=")): "nothing that is added to lies right behind what is near",
    (CPU_FAULTS, FIRST_FAULT, FIRST_FAULT.replace("> 0", "> (0 + 1)")): "line 1 is said as line 1 either way",
    (CPU_FAULTS, WHAT, WHAT.replace("- 1", "- (1 + 1)")): "none of these few words has 63 characters",
    (
        CPU_FAULTS,
        WHAT,
        WHAT.replace("- 1", "+ 1"),
    ): "undefined: one zero more, on the file's name, which is written next",
    (FAULTS, MEMORY, MEMORY.replace("1 <<", "(1 + 1) <<")): ROOM,
    (FAULTS, MEMORY, MEMORY.replace("16", "(16 + 1)")): ROOM,
    (CPU_FAULTS, "longjmp(WAY_OUT, 1);", "longjmp(WAY_OUT, (1 + 1));"): "any number but 0 is a jump that came back",
    (MATH, ANGLE, ANGLE.replace("<", "<=")): EVERY_FLOAT,
    (MATH, TURN, TURN.replace("<", "<=")): EVERY_FLOAT,
    (MATH, TANH, TANH.replace(">=", ">")): "at 0.55 itself the two have the same bits",
    (MATH, FITS, FITS.replace(">=", ">")): "-2^31 is the least int either way",
    (MATH, LIMIT, LIMIT.replace("y >", "y >=")): "the result for y = 0 is 1, whatever was found before",
    (MATH, BELOW, BELOW.replace(">", ">=")): SAME,
    (MATH, IN_RANGE, IN_RANGE.replace("(e) <", "(e) <=")): "at 80 itself both ways are right",
    (MATH, NOTHING, NOTHING.replace("<", "<=")): "either is right at 1e-30 itself",
    (MATH, FITS_NOT, FITS_NOT.replace(">", ">=")): "0 fits",
    (MATH, BOUNDED, BOUNDED.replace("<", "<=")): SAME,
    (MATH, GREATER_INT, GREATER_INT.replace(">", ">=")): SAME,
    (HALVES, ODD_HALF, ODD_HALF.replace("!= 0", "!= (0 + 1)")): FASTER,
    (HALVES, ODD_HALF, ODD_HALF.replace("*", "+")): FASTER,
    (NEIGHBOURS, BOUND, ""): UNCLEARED,
    (NEIGHBOURS, SEARCHES, SEARCHES.replace("> 256", ">= 256")): FASTER,
    (NEIGHBOURS, QUICK, "return false;"): DOUBT,
    (NEIGHBOURS, QUICK, QUICK.replace(">", ">=")): DOUBT,
    (NEIGHBOURS, PLACES, PLACES.replace("/", "*")): ROOM,
    (NEIGHBOURS, DRIFT, DRIFT.replace("2.001f", "(2.001f * 1.5f + 0.25f)")): DOUBT,
    (NEIGHBOURS, DRIFT, DRIFT.replace("2.001f *", "2.001f +")): DOUBT,
    (NEIGHBOURS, THREE_ROWS, THREE_ROWS.replace("row +", "row -")): DOUBT,
    (NEIGHBOURS, PER_SQUARE, PER_SQUARE.replace(">", ">=")): SAME,
    (NEIGHBOURS, TAKEN, "thorough(found, p);"): SPEED,
    (NEIGHBOURS, OF_ONE, OF_ONE.replace(": 0", ": (0 + 1)")): "whose row is written by nobody may look from any agent",
    (NEIGHBOURS, BOUND, BOUND.replace("2.0f *", "2.0f +", 1)): DOUBT,
    (NEIGHBOURS, BOUND, BOUND.replace("min", "max")): DOUBT,
    (NEIGHBOURS, BOUND, BOUND.replace(": 2.0f * side *", ": 2.0f * side +")): DOUBT,
    (NEIGHBOURS, LOOKED, LOOKED.replace("+=", "-=")): DOUBT,
    (NEIGHBOURS, TOO_FAR, TOO_FAR.replace("if (words.far()) ", "")): DOUBT,
    (NEIGHBOURS, ALL_CELLS, ALL_CELLS.replace("&& bottom", "|| bottom")): DOUBT,
    (
        NEIGHBOURS,
        NUMBER_OF_ROWS,
        NUMBER_OF_ROWS.replace("/", "*"),
    ): "in any number of rows of cells the neighbours are the same",
    (
        NEIGHBOURS,
        ITSELF,
        ITSELF.replace("p - base)", "p + base)"),
    ): "base is a multiple of 32, and this processor shifts by a number modulo 32; a GPU does not, and its tests see it",
    (NEIGHBOURS, SEARCHES, SEARCHES.replace("> 8", ">= 8")): FASTER,
    (NEIGHBOURS, REMEMBERED, REMEMBERED.replace("0.0f", "(0.0f * 1.5f + 0.25f)")): "any hint gives the same neighbours",
    (
        NEIGHBOURS,
        NEARER,
        NEARER.replace("*", "+"),
    ): "whoever is nearer than any bound is taken, and fewer than K of them are never sure",
    (ROWS, ROWS_ANY, ROWS_ANY.replace("? team", "? !team")): "on a CPU ROWS_STAGED is 0",
    (
        NEAREST,
        NO_KEY,
        NO_KEY.replace("0", "(0 + 1)"),
    ): "no key is as great: the greatest is less than COUNT more than MOST * COUNT",
    (
        NEAREST,
        MOST,
        MOST.replace("- 1", "+ 1"),
    ): "any number of parts that the bits hold will do; all words stay less than NOBODY",
    (NEAREST, LEAST_KEY, LEAST_KEY.replace("<", "<=")): SAME,
    (NEAREST, OFFER, "insert_next(d, j);"): SPEED,
    (NEAREST, OFFER, OFFER.replace("<", "<=")): SPEED,
    (NEAREST, CLEAR, CLEAR.replace("+ NOBODY", "- NOBODY")): DOUBT,
    (NEAREST, LEAST_WORD, ""): DOUBT,
    (NEAREST, GREATER, GREATER.replace("a > b", "a >= b")): SAME,
    (
        NEAREST,
        PART,
        PART.replace("/", "*"),
    ): "the search looks further than it has to, or a thousandth of a cell covers it",
    (NEAREST, FAR, FAR.replace("- LEAST", "+ LEAST")): DOUBT,
    (NEAREST, SCALED, SCALED.replace("<", "<=")): SAME,
    (NEAREST, PARTS, PARTS.replace("/", "*")): DOUBT,
}
