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
EQUIVALENT = {
    (DRIVE, "}\nteam.sync();", ";"): SYNCED,
    (DRIVE, "if (team.leader()) batch.clock[e] = clock;\nteam.sync();", ";"): SYNCED,
    (DRIVE, READ, ";  // all have read the clock"): LATER,
    (
        DRIVE,
        AGAIN,
        "if (!last) ;  // the near observation is written again",
    ): "a reset, which has a sync of its own, comes between",
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
