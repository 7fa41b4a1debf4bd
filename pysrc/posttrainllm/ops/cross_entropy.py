"""cross_entropy: how surprised the model is by the next token, in nats; negative targets (-100) do not count.

lse[r] = log Σ_v exp(logits[r,v]);  losses[r] = lse[r] - logits[r,target] (0 where ignored)
loss = [mean of the counted losses, how many counted];  0 when none counts
dlogits = dloss/count·(softmax(logits) - onehot), 0 on ignored rows. Saved: lse[R].
cross_entropy_backward_rows, where each row's loss has a gradient of its own (dpo): dlogits = dlosses[r]·(softmax(logits) - onehot).
"""

from .lazy import np
from .spec import Kernel, Op, args


def _counted(targets):
    index = targets.astype(np.int64)
    return index, index >= 0


def _forward(sizes, params, logits, targets, losses, lse, loss):
    index, counted = _counted(targets)
    top = logits.max(1)
    lse[...] = top + np.log(np.exp(logits - top[:, None]).sum(1))
    rows = np.arange(sizes["R"])
    losses[...] = np.where(counted, lse - logits[rows, np.where(counted, index, 0)], 0.0)
    loss[1] = counted.sum()
    loss[0] = losses.sum() / max(1, int(loss[1]))


def _backward(sizes, params, logits, targets, lse, loss, dloss, dlogits):
    _backward_rows(sizes, params, logits, targets, lse, np.full(len(lse), dloss[0] / max(1.0, loss[1])), dlogits)


def _backward_rows(sizes, params, logits, targets, lse, dlosses, dlogits):
    index, counted = _counted(targets)
    p = np.exp(logits - lse[:, None])
    p[np.arange(sizes["R"])[counted], index[counted]] -= 1.0
    dlogits[...] = np.where(counted[:, None], p * dlosses[:, None], 0.0)


def _gradient(builder, node, dy):
    """dy is the gradient of the mean [1], or of the losses of the rows where another op reads those."""
    logits, given = node.arg("logits"), {name: node.arg(name) for name in ("logits", "targets", "lse")}
    dlosses = builder.gradient_of(node.arg("losses"))
    if dlosses is not None:
        made = builder.call("cross_entropy_backward_rows", node.sizes, **given, dlosses=dlosses)
    else:
        made = builder.call("cross_entropy_backward", node.sizes, **given, loss=node.arg("loss"), dloss=dy)
    builder.add_gradient(logits, made["dlogits"])


_LETTERS = ("R", "V")
CROSS_ENTROPY = Kernel(
    "cross_entropy",
    _LETTERS,
    args("in logits [R,V]", "in targets [R] i32", "out losses [R]", "saved lse [R]", "out loss [2]"),
    _forward,
    flops=lambda s: 12 * s["R"] * s["V"],
    reduces=("V", "R"),
    tolerance=2.0,
)
CROSS_ENTROPY_BACKWARD = Kernel(
    "cross_entropy_backward",
    _LETTERS,
    args(
        "in logits [R,V]",
        "in targets [R] i32",
        "in lse [R]",
        "in loss [2]",
        "in dloss [1]",
        "out dlogits [R,V] over logits",
    ),
    _backward,
    flops=lambda s: 12 * s["R"] * s["V"],
    tolerance=4.0,
)
CROSS_ENTROPY_BACKWARD_ROWS = Kernel(
    "cross_entropy_backward_rows",
    _LETTERS,
    args("in logits [R,V]", "in targets [R] i32", "in lse [R]", "in dlosses [R]", "out dlogits [R,V] over logits"),
    _backward_rows,
    flops=lambda s: 12 * s["R"] * s["V"],
    tolerance=4.0,
)
OP = Op(CROSS_ENTROPY, _gradient, (CROSS_ENTROPY_BACKWARD,))
