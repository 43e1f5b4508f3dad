"""Mutants of the shared kernels that no test can see, each with the reason: (file, the line before, the line after) -> why.

Lines are named by their text, not their number. `python tests/mutation.py --shared` says which survivors are listed here.
"""

SPEED = "does more work than is needed, with the same result"
FINITE, SHUFFLE, CATEGORICAL, GAUSSIAN = (
    f"train/{name}.cu" for name in ("finite", "shuffle", "categorical", "gaussian")
)
WHOLE = "if (start + STRIDE <= call.size) {"
STRIDE = "constexpr int STRIDE = 4;  // numbers per element of the launch: one 16-byte read"
HALF = "while (half < 15 && (1 << 2 * half) < call.size) half += 1;"
ENTROPY = "if (call.entropy != nullptr) entropy += choices.entropy();"
NORMALS = "if (head % 4 == 0) n = normals(random, call.first_agent + i, head / 4);"
BITS = "if (head % 4 == 0) bits = random.bits(call.first_agent + i, head / 4);"
DRIVE = "drive/drive.cuh"
READ = "team.sync();  // all have read the clock"
AGAIN = "if (!last) team.sync();  // the near observation is written again"
LATER = "the clock is written after the sync that ends every observation, which whoever has not read it has not reached"
SYNCED = "what comes next reads the member's own words, or what was written before a sync that every way there passes"
STREAM = "Random{*batch.seed, (u32)(batch.first_env + e), clock.episode, 0u, RESET}, clock.elapsed, \\"
COPIED = "[[maybe_unused]] const int copied_at = from == 0 ? e % until : -1;"
SKIPPED = "if (SMALL && !last && !to_final) continue;"
DRAWS = "whoever draws sets the step and the purpose first"
SPREAD = "constexpr bool SPREAD = RANDOM && TEAM > 32 && !OBS_NEAR;"
PLATFORM = "drive/platform.cuh"
COPY = "if (to != from) memcpy(to, from, 4 * (size_type)WORDS);"
OWN_COUNT = "constexpr int own_count(const int n) { return (n + TEAM - 1) / TEAM; }"
OWN_TURNS = "for (int k = 0; k < own_count(n); ++k)                         \\"
ALL = "DEVICE Each all(int n) const { return {rank, (n + TEAM - 1) / TEAM * TEAM}; }"
LEADER = "DEVICE bool leader() const { return TEAM == 1 || rank == 0; }"
SIDE = "constexpr int side(int n) { return (n + SIDE_FLOATS - 1) / SIDE_FLOATS * SIDE_FLOATS; }"
LEAST = (
    "while (value < before "
    "&& !__atomic_compare_exchange_n(word, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}"
)
ONE = "on a CPU this team has one member: TEAM is 1, its rank is 0"
ROOM = "takes more room than is needed, and nothing reads it"
TURNS = "more turns and room than are needed: each turn looks whether its index is one"
LANES = "drive/lanes.cuh"
LANE_WORDS = "u32 word[sizeof(T) / 4][LANES];"
WORDS = (
    "constexpr bool WORD_BY_WORD = Agent::OBS != 3 && (Agent::OBS & (Agent::OBS - 1)) != 0 && sizeof(LaneObs) % 4 == 0;"
)
BESIDE = (
    "constexpr bool SIDE_BY_SIDE = !Agent::Space::MASKED && !Agent::Space::LEAVES && !HAS_SHARED && STATE_NEAR "
    "&& sizeof(State) <= 128;"
)
FASTER = "chooses the faster of two ways with the same results"
ENV = "drive/env.cuh"
WANTED = "int wanted = Random::below(word, allowed);"
CHOICES = "for (int k = 0; k < size; ++k) {"
LAUNCH = "drive/launch.cuh"
OPEN = "rendezvous.open((u32)first + 1u);                                                        \\"
UNTIL = "until = (steps) - from < (piece) ? (steps) : from + (piece);      \\"
EQUIVALENT = {
    (DRIVE, "}\nteam.sync();", ";"): SYNCED,
    (DRIVE, "if (team.leader()) batch.clock[e] = clock;\nteam.sync();", ";"): SYNCED,
    (DRIVE, READ, ";  // all have read the clock"): LATER,
    (
        DRIVE,
        AGAIN,
        "if (!last) ;  // the near observation is written again",
    ): "a reset, which has a sync of its own, comes between",
    (DRIVE, STREAM, STREAM.replace("0u", "(0u + 1)")): DRAWS,
    (DRIVE, STREAM, STREAM.replace("RESET", "DYNAMICS")): DRAWS,
    (
        DRIVE,
        SKIPPED,
        SKIPPED.replace("&&", "||", 1),
    ): "on a CPU SMALL is false and the loop begins where there is something",
    (DRIVE, COPIED, COPIED.replace("? e", "? !e")): "the rows may be copied at any step",
    (DRIVE, SPREAD, SPREAD.replace("> 32", ">= 32")): FASTER,
    (PLATFORM, OWN_COUNT, OWN_COUNT.replace("- 1", "+ 1")): TURNS,
    (PLATFORM, OWN_COUNT, OWN_COUNT.replace("/", "*")): TURNS,
    (PLATFORM, OWN_TURNS, OWN_TURNS.replace("<", "<=")): TURNS,
    (PLATFORM, ALL, ALL.replace("/", "*")): ONE,
    **{
        (PLATFORM, LEADER, LEADER.replace(*change)): ONE
        for change in (("== 1", "!= 1"), ("||", "&&"), ("== 1", "== (1 + 1)"), ("== 0", "!= 0"))
    },
    (PLATFORM, SIDE, SIDE.replace("/", "*")): ROOM,
    (PLATFORM, SIDE, SIDE.replace("- 1", "+ 1")): ROOM,
    (PLATFORM, LEAST, LEAST.replace("<", "<=")): "stores a number that is there",
    (
        PLATFORM,
        COPY,
        "memcpy(to, from, 4 * (size_type)WORDS);",
    ): "a place copied onto itself stays as it is, in every C library",
    (PLATFORM, ALL, ALL.replace("/ TEAM * TEAM", "/ TEAM + TEAM")): "indices of n or more are allowed",
    (LANES, LANE_WORDS, LANE_WORDS.replace("/", "*")): ROOM,
    (LANES, WORDS, WORDS.replace("!= 3", "== 3")): FASTER,
    (LANES, WORDS, WORDS.replace("OBS - 1", "OBS + 1")): FASTER,
    (LANES, BESIDE, BESIDE.replace("<=", "<")): FASTER,
    (ENV, CHOICES, CHOICES.replace("<", "<=")): "returns before: as many choices are counted as are allowed",
    (
        ENV,
        WANTED,
        "int wanted = Random::below(allowed, word);",
    ): "the upper half of a product, whichever factor is first",
    (LAUNCH, OPEN, OPEN.replace("+", "-")): "any seed shuffles the members",
    (LAUNCH, UNTIL, UNTIL.replace("<", "<=")): "where the two are equal, so are both ends",
    (FINITE, WHOLE, WHOLE.replace("<=", "<")): SPEED,
    (FINITE, STRIDE, STRIDE.replace("= 4", "= (4 + 1)")): SPEED,
    (
        SHUFFLE,
        HALF,
        HALF.replace("half < 15", "half <= 15"),
    ): "at half = 15 the second condition is false for all sizes allowed",
    (CATEGORICAL, ENTROPY, "entropy += choices.entropy();"): SPEED,
    (CATEGORICAL, BITS, "bits = random.bits(call.first_agent + i, head / 4);"): SPEED,
    (GAUSSIAN, NORMALS, "n = normals(random, call.first_agent + i, head / 4);"): SPEED,
}
