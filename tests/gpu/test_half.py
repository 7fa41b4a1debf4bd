"""Every kernel in half precision against the float64 judge.

Inputs are rounded to f16 first, so that what a kernel may be off by is its f32 arithmetic (tests/helpers/kernels.py) and,
where it stores in f16, one rounding: 2^-11 of the number, or 2^-25 where that is less than f16's least normal step.
"""

# ruff: noqa: F811 - a fixture has the name of the arguments that ask for it
import numpy as np
import pytest
from posttrainllm.backends.gpu.options import HALF_ARGUMENTS

from tests.gpu.half import fresh_state, half, run_half, set_state  # noqa: F401
from tests.helpers.cases import ALL_CASES, FINISH, base_case, inputs_for
from tests.helpers.kernels import judged, tolerances

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
HALF_EPS, LEAST_STEP = 2.0**-11, 2.0**-25
COSTLY = ("attention", "attention_backward")
SCALE = 256.0
"""Loss scale of the kernels' tests: what cross_entropy_backward writes must stay below 65,504."""


def _rounded(inputs, halves):
    return {
        key: np.asarray(value, np.float16 if key in halves else value.dtype).astype(
            np.int32 if value.dtype == np.int32 else np.float32
        )
        for key, value in inputs.items()
    }


def check_half(machine, case):
    """A kernel in half precision against the judge; see the module's docstring for what is allowed."""
    name, halves = case.kernel.name, HALF_ARGUMENTS.get(case.kernel.name, ())
    inputs = _rounded(inputs_for(case), halves)
    if name == "attention_backward":  # what forward gives for these: lse and qkv must belong together
        FINISH[name](case, inputs)
        inputs = _rounded(inputs, halves)
    expected = judged(case.kernel, case.sizes, case.params, inputs)
    allowed = tolerances(case, inputs, expected)
    set_state(machine, SCALE)
    got = run_half(machine, case, inputs)
    for output, (value, kind) in got.items():
        scale = SCALE if name.startswith("cross_entropy_backward") and output == "dlogits" else 1.0
        right = expected[output] * scale
        bound = allowed[output] * scale + (np.maximum(HALF_EPS * np.abs(right), LEAST_STEP) if kind == "<f2" else 0.0)
        error = np.abs(value - right)
        assert np.isfinite(value).all() and np.abs(right).max() < 60000, f"{case} {output}"
        assert (error <= bound).all(), f"{case} {output}: off by {np.max(error - bound):.3g} more than allowed"


@pytest.mark.parametrize("name", [name for name in HALF_ARGUMENTS if name not in COSTLY])
def test_every_kernel(half, name):
    for case in ALL_CASES[name]:
        if case.kind == "usual":
            check_half(half, case)


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("width", [7, 16])
def test_attention(half, name, width):
    for time in (1, 33):
        check_half(half, base_case(name, D=width, T=time, H=2))


def test_norm_and_adamw_take_the_scale_out(half):
    """Gradients come multiplied by the scale, a power of two: what is written is to the bit what it is without."""
    for name, scaled in (("grad_norm", "grad"), ("adamw", "grad")):
        case = base_case(name, N=1000)
        inputs = inputs_for(case)
        set_state(half, 1.0)
        plain = run_half(half, case, inputs)
        set_state(half, SCALE)
        got = run_half(half, case, inputs | {scaled: inputs[scaled] * np.float32(SCALE)})
        for output in ("norm",) if name == "grad_norm" else ("param", "m", "v"):
            assert (got[output][0] == plain[output][0]).all()
