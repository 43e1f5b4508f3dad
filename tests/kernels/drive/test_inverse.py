"""math::inverse on a GPU, for every float that it is meant for: an approximation and one correction are rounded to nearest."""

import numpy as np
import pytest
from test_math import GPU_FUNCTION, GPU_PRELUDE, NVRTC_OPTIONS, source

pytestmark = pytest.mark.full

INVERSES = """
extern "C" __global__ void wrong_inverses(unsigned long long* wrong) {
  for (u32 word = 0x3f800000u + blockIdx.x * blockDim.x + threadIdx.x; word <= 0x71800000u; word += gridDim.x * blockDim.x) {
    const float a = math::from_bits(word);
    if (math::bits(math::inverse(a)) != math::bits(math::divide(1.0f, a))) atomicAdd(wrong, 1ull);
  }
}
"""


@pytest.mark.gpu
def test_every_inverse_is_rounded_to_nearest():
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(code=source(GPU_PRELUDE, GPU_FUNCTION) + INVERSES, options=tuple(NVRTC_OPTIONS))
    wrong = cupy.zeros(1, np.uint64)
    module.get_function("wrong_inverses")((2048,), (256,), (wrong,))
    assert wrong[0] == 0
