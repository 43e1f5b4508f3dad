"""Edge cases of drive/math.cuh, which tests/kernels/drive/test_math.py tries."""

import numpy as np

inf, nan, pi = np.inf, np.nan, float(np.float32(np.pi))
SMALL = 2.0**-126
BELOW_1 = -np.nextafter(np.float32(1), np.float32(0))

EDGE_CASES = [  # name, a, b, result; zeros compare with their sign
    ("sin", 0, 0, 0), ("cos", 0, 0, 1), ("sin", 1e-40, 0, 0), ("sin", inf, 0, nan), ("cos", -inf, 0, nan),
    ("cos", nan, 0, nan), ("exp", 0, 0, 1), ("exp", -0.0, 0, 1), ("exp", 89, 0, inf), ("exp", inf, 0, inf),
    ("exp", 3e38, 0, inf), ("exp", -87.4, 0, 0), ("exp", -inf, 0, 0), ("exp", -3e38, 0, 0),
    ("exp", nan, 0, nan), ("exp", 1e-40, 0, 1), ("log", 1, 0, 0), ("log", 0, 0, -inf),
    ("log", -0.0, 0, -inf), ("log", 1e-40, 0, -inf), ("log", -1e-40, 0, -inf), ("log", -1, 0, nan),
    ("log", -inf, 0, nan), ("log", inf, 0, inf), ("log", nan, 0, nan), ("tanh", 0, 0, 0),
    ("tanh", -0.0, 0, -0.0), ("tanh", 10, 0, 1), ("tanh", -10, 0, -1), ("tanh", 3e38, 0, 1),
    ("tanh", inf, 0, 1), ("tanh", -inf, 0, -1), ("tanh", nan, 0, nan), ("sqrt", -1, 0, nan),
    ("sqrt", inf, 0, inf), ("atan2", 0, 0, 0), ("atan2", -0.0, 0, -0.0), ("atan2", 0, -0.0, pi),
    ("atan2", -0.0, -0.0, -pi), ("atan2", 0, 1, 0), ("atan2", -0.0, 1, -0.0), ("atan2", 0, -1, pi),
    ("atan2", -0.0, -1, -pi), ("atan2", 1, 0, pi / 2), ("atan2", -1, 0, -pi / 2), ("atan2", 1, -0.0, pi / 2),
    ("atan2", inf, inf, pi / 4), ("atan2", -inf, -inf, -2.3561945), ("atan2", 1, inf, 0),
    ("atan2", 1, -inf, pi), ("atan2", inf, 1, pi / 2), ("atan2", -inf, -1, -pi / 2), ("atan2", nan, 1, nan),
    ("atan2", 1, nan, nan), ("atan2", nan, 0, nan), ("atan2", inf, nan, nan), ("atan2", 1e-40, -1e-40, pi),
    ("pow", 0, 2, 0), ("pow", 0, -2, inf), ("pow", 0, 0, 1), ("pow", nan, 0, 1), ("pow", 1, nan, 1),
    ("pow", 1, inf, 1), ("pow", inf, 2, inf), ("pow", inf, -2, 0), ("pow", 2, inf, inf),
    ("pow", 0.5, inf, 0), ("pow", 2, -inf, 0), ("pow", 0.5, -inf, inf), ("pow", -1, 2, nan),
    ("pow", 2, nan, nan), ("pow", nan, 2, nan), ("pow", 2, 128, inf), ("pow", 2, 127, 2.0**127),
    ("pow", 2, -126, SMALL), ("pow", 2, -127, 0), ("pow", 3, 2, 9), ("pow", 0, inf, 0),
    ("pow", 0, -inf, inf), ("pow", 0, 0.5, 0), ("pow", -0.0, 0.5, 0), ("pow", 0, -0.5, inf),
    ("pow", inf, 0.5, inf), ("pow", inf, -0.5, 0), ("pow", inf, inf, inf), ("pow", inf, nan, nan), ("pow", 10, 3, 1000),
    ("pow_minus_1", 1, 7, 0), ("pow_minus_1", 7, 0, 0), ("pow_minus_1", 0, 0.5, -1), ("pow_minus_1", 0, -0.5, inf),
    ("pow_minus_1", inf, 0.5, inf), ("pow_minus_1", inf, -0.5, -1), ("pow_minus_1", -1, 2, nan), ("pow_minus_1", 10, 50, inf),
    ("pow_minus_1", 10, -50, -1), ("pow_minus_1", nan, 2, nan), ("pow_minus_1", 2, nan, nan), ("pow_minus_1", 3, 2, 8),
    ("pow_minus_1", 2, 127, 2.0**127), ("pow_minus_1", 0, 0, 0), ("pow_minus_1", nan, 0, 0), ("pow_minus_1", 1, nan, 0),
    ("pow_minus_1", 0.5, 2, -0.75), ("pow_minus_1", 1e-40, -0.5, inf), ("pow_minus_1", 2, inf, inf), ("pow_minus_1", 1, inf, 0),
    ("pow_minus_1", 2, 1e-31, 0), ("pow_minus_1", 2, -1e-29, -6.931472e-30),
    ("floor", -0.5, 0, -1), ("floor", 2.5, 0, 2), ("floor", -inf, 0, -inf), ("floor", nan, 0, nan),
    ("abs", -0.0, 0, 0), ("abs", -inf, 0, inf), ("abs", -2, 0, 2), ("min", nan, 1, 1), ("min", 1, nan, nan),
    ("min", -0.0, 0, 0), ("min", 0, -0.0, -0.0), ("min", 1, 2, 1), ("max", nan, 1, 1), ("max", 1, nan, nan),
    ("max", -0.0, 0, 0), ("max", 0, -0.0, -0.0), ("max", 1, 2, 2), ("unit", nan, 0, 0), ("unit", -0.0, 0, 0),
    ("unit", 0.5, 0, 0.5), ("unit", inf, 0, 1), ("unit", -inf, 0, 0), ("clamp", nan, 1, -0.75),
    ("clamp", 5, 1, 1), ("clamp", -0.0, 1, -0.0), ("wrap_turn", -1e-10, 0, 0), ("wrap_turn", 2 * pi, 0, 0),
    ("wrap_turn", -0.0, 0, 0), ("wrap_turn", float.fromhex("0x1.4ac55cp+26"), 0, 0), ("wrap_angle", pi, 0, -pi),
    ("wrap_angle", -pi, 0, -pi), ("shortest_turn", 0, pi, -pi), ("shortest_turn", pi, 0, pi), ("shortest_turn", 1, 1, 0),
    ("log1p", 0, 0, 0), ("log1p", -0.0, 0, 0), ("log1p", 1e-40, 0, 0), ("log1p", SMALL, 0, SMALL),
    ("log1p", -SMALL, 0, -SMALL), ("log1p", -1, 0, -inf), ("log1p", -1.0000001, 0, nan), ("log1p", -inf, 0, nan),
    ("log1p", inf, 0, inf), ("log1p", nan, 0, nan), ("log1p", BELOW_1, 0, -16.635532), ("log1p", 3.4028235e38, 0, 88.72284),
    ("log1p", 2.2e38, 0, 88.28669), ("log1p", 16777216, 0, 16.635532), ("softplus", 0, 0, 0.6931472),
    ("softplus", inf, 0, inf), ("softplus", -inf, 0, 0), ("softplus", nan, 0, nan), ("softplus", -88, 0, 0),
    ("softplus", 3e38, 0, 3e38), ("softplus", 20, 0, 20), ("softplus", 17, 0, 17),
]  # fmt: skip
