"""dpo: how far a model prefers chosen answers to rejected ones, against a frozen reference (Rafailov et al. 2023).

The rows of `losses` are sequences of T positions: S chosen ones, then the S rejected ones of the same prompts. A position that
does not count has loss 0, so a sequence's log-probability is minus the sum of its row.
logp_b = -Σ_t losses[b,t];  margin_i = beta·((logp_i - reference_i) - (logp_{S+i} - reference_{S+i}))
loss = [mean of softplus(-margin) in nats, S]; ln 2 where model and reference agree.  Saved: margins[S].
dlosses = +dloss·beta·sigmoid(-margin)/S in chosen rows, minus that in rejected ones. Positions that do not count get it too:
cross_entropy_backward_rows passes over them.
"""

from .lazy import np
from .spec import Kernel, Op, args


def _forward(sizes, params, losses, reference, beta, margins, loss):
    s = sizes["S"]
    gained = -losses.sum(1) - reference
    margins[...] = beta[0] * (gained[:s] - gained[s:])
    loss[0] = np.logaddexp(0.0, -margins).mean()
    loss[1] = s


def _backward(sizes, params, margins, beta, dloss, dlosses):
    s = sizes["S"]
    falling = np.exp(-np.logaddexp(0.0, margins))  # sigmoid(-margin), without an exp that overflows
    dlosses[:s] = (dloss[0] * beta[0] / s * falling)[:, None]
    dlosses[s:] = -dlosses[:s]


def _gradient(builder, node, dy):
    losses = node.arg("losses")
    if builder.needs(losses):
        made = builder.call("dpo_backward", node.sizes, margins=node.arg("margins"), beta=node.arg("beta"), dloss=dy)
        builder.add_gradient(losses, made["dlosses"])


_LETTERS = ("S", "T")
DPO = Kernel(
    "dpo",
    _LETTERS,
    args("in losses [2S,T]", "in reference [2S]", "in beta [1]", "saved margins [S]", "out loss [2]"),
    _forward,
    flops=lambda s: 2 * s["S"] * s["T"] + 24 * s["S"],
    reduces=("T",),
    tolerance=8.0,
    source="arXiv 2305.18290",
)
DPO_BACKWARD = Kernel(
    "dpo_backward",
    _LETTERS,
    args("in margins [S]", "in beta [1]", "in dloss [1]", "out dlosses [2S,T]"),
    _backward,
    flops=lambda s: 2 * s["S"] * s["T"] + 12 * s["S"],
    tolerance=4.0,
    source="arXiv 2305.18290",
)
OP = Op(DPO, _gradient, (DPO_BACKWARD,))
