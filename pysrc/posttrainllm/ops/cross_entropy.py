"""cross_entropy: how surprised the model is by the next token, in nats; negative targets (-100) do not count.

lse[r] = log Σ_v exp(logits[r,v]);  losses[r] = lse[r] - logits[r,target] (0 where ignored)
loss = [mean of the counted losses, how many counted];  0 when none counts
dlogits = dloss/count·(softmax(logits) - onehot), 0 on ignored rows. Saved: lse[R].
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
    index, counted = _counted(targets)
    p = np.exp(logits - lse[:, None])
    p[np.arange(sizes["R"])[counted], index[counted]] -= 1.0
    dlogits[...] = np.where(counted[:, None], p * (dloss[0] / max(1.0, loss[1])), 0.0)


def _gradient(builder, node, dy):
    logits = node.arg("logits")
    made = builder.call(
        "cross_entropy_backward",
        node.sizes,
        logits=logits,
        targets=node.arg("targets"),
        lse=node.arg("lse"),
        loss=node.arg("loss"),
        dloss=dy,
    )
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
        "out dlogits [R,V]",
    ),
    _backward,
    flops=lambda s: 12 * s["R"] * s["V"],
    tolerance=4.0,
)
OP = Op(CROSS_ENTROPY, _gradient, (CROSS_ENTROPY_BACKWARD,))
