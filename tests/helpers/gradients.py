"""Graphs run in float64 without a plan, and gradients checked by finite differences along random directions."""

import numpy as np

from posttrainllm.compile import Graph, Value
from posttrainllm.compile.differentiate import Builder
from posttrainllm.ops import OPS

from .kernels import NoSignal

STEP = 1e-4
TOLERANCE = 1e-9  # of max(1, |f|): five-point differences at STEP err by 1e-12 f from rounding, less from truncation
LEAST_SIGNAL = 1000  # a check is refused where the derivative is below this many tolerances


def execute(graph, given, replaced=None):
    """Run a Graph on float64 arrays: given by Value, others NaN (gradients of weights 0). Returns all by Value."""
    arrays = {value: np.array(array, np.float64) for value, array in given.items()}
    for value in graph.values():
        if value not in arrays:
            arrays[value] = np.full(value.shape, 0.0 if value.region == "grads" else np.nan)
    for node in graph.nodes:
        run = (replaced or {}).get(node.kernel.name, node.kernel.run)
        shapes = [node.kernel.shape(a, node.sizes) for a in node.kernel.args]
        run(node.sizes, node.params, *(arrays[node.arg(a.name)].reshape(s) for a, s in zip(node.kernel.args, shapes)))
    return arrays


def derivative(f, x, direction):
    """f'(x; direction) by five points, and f's largest magnitude among them."""
    values = [f(x + k * STEP * direction) for k in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP)
    return slope, max(1.0, *map(abs, values))


def check_gradient(label, f, x, dx, trials=3, seed=0):
    """Assert that dx is the gradient of the number f(x) at x. Raises NoSignal where f does not answer to x."""
    rng = np.random.default_rng(seed)
    assert dx.shape == x.shape, f"{label}: gradient is {dx.shape}, its array {x.shape}"
    for _ in range(trials):
        direction = rng.standard_normal(x.shape)
        slope, scale = derivative(f, x, direction)
        tolerance = TOLERANCE * scale
        if abs(slope) < LEAST_SIGNAL * tolerance:
            raise NoSignal(f"{label}: the derivative {slope:.2g} is not {LEAST_SIGNAL} tolerances of {tolerance:.2g}")
        claimed = float((dx * direction).sum())
        assert abs(claimed - slope) <= tolerance, (
            f"{label}: along a random direction the gradient says {claimed!r}, differences say {slope!r}, "
            f"allowed {tolerance:.2g}"
        )


SLOTS = ("strength", "reference", "beta")
"""Inputs that are set from outside at every step: no gradient is taken of them."""


def check_op_gradient(case, inputs, replaced=None, frozen=()):
    """Assert that an op's backward kernels give the gradient of sum(w·output) for a random w, for every float input but
    the frozen ones (which must get none) and SLOTS. An output that is added to starts from what `inputs` has of it."""
    op, rng = OPS[case.kernel.name], np.random.default_rng(7)
    graph = Graph()
    regions = {"i32": "inputs", "f32": "params"}
    values = {
        a.name: Value(a.name, case.kernel.shape(a, case.sizes), a.dtype, "slots" if a.name in SLOTS else regions[a.dtype], 0)
        for a in case.kernel.args
        if a.role == "in"
    }
    values |= {a.name: Value(a.name, case.kernel.shape(a, case.sizes)) for a in case.kernel.args if a.role == "inout"}
    node = graph.call(case.kernel.name, case.sizes, case.params, **values)
    scalar = "loss" in node.values  # of cross_entropy's outputs the mean loss alone is differentiated
    output = node.arg("loss") if scalar else node.written()[0]
    weights = rng.standard_normal(1 if scalar else output.shape)
    dy = Value("dy", weights.shape, "f32", "slots", 0)
    builder = Builder(graph, {name for name, value in values.items() if value.region == "params"} - set(frozen))
    builder.add_gradient(output, dy)
    op.gradient(builder, node, dy)
    given = {value: np.array(inputs[name], np.float64) for name, value in values.items()}
    arrays = execute(graph, given | {dy: weights}, replaced)
    forward = Graph()
    forward.nodes = [node]
    for name, value in values.items():
        if value.region != "params":
            continue
        gradient = builder.gradient_of(value)
        if name in frozen:
            assert gradient is None, f"{case}: {name} is frozen"
            continue
        assert gradient is not None, f"{case}: no gradient reaches {name}"

        def f(x, value=value):
            result = execute(forward, given | {value: x})[output]
            return float((result.reshape(-1)[: weights.size] * weights.reshape(-1)).sum())

        check_gradient(f"{case} d{name}", f, given[value], arrays[gradient].reshape(value.shape))
