"""Makes dpo.npz: what PyTorch says of one step of DPO on a small GPT. Run with PyTorch 2.13 (CPU), from the repository's root:

    PYTHONPATH=pysrc python -m tests.golden.make_dpo

The model is make_golden's; policy and reference start from two seeds. Log-probabilities and loss are written as TRL 1.16 has them
for loss_type "sigmoid" (a batch of the chosen answers and then the rejected ones; log-softmax gathered at the next token, summed
over the positions of the completion; -logsigmoid(beta * ((chosen - its reference) - (rejected - its reference))), the mean over
pairs), with torch's own log_softmax, gather and logsigmoid. In float64 (the golden values) and in float32 (how far that strays).
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.config import GPTConfig
from tests.golden.make_golden import GPT, ours, transposed
from tests.helpers.models import Model, text

FILE = Path(__file__).with_name("dpo.npz")
CONFIG = GPTConfig(layers=1, channels=12, heads=2, context=9, vocabulary=31, batch=6)
PAIRS, BETA, POLICY_SEED, REFERENCE_SEED, BOOST = 3, 0.3, 42, 44, 12.0
STEPS, RATE = 8, 0.1  # plain gradient descent: what the gradient says, again and again


def batch():
    """Tokens and targets [2S,T]: three prompts of 2, 3 and 4 tokens, answers that end at different places, -100 elsewhere."""
    rows, targets = [], []
    for side in range(2):
        for pair in range(PAIRS):
            prompt, answer = text(2 + pair, CONFIG.vocabulary, pair), text(3 + (pair + side) % 3, CONFIG.vocabulary, 50 + 7 * side + pair)
            tokens = np.concatenate([prompt, answer])
            row, target = np.zeros(CONFIG.context, np.int32), np.full(CONFIG.context, -100, np.int32)
            row[: len(tokens) - 1] = tokens[:-1]
            target[len(prompt) - 1 : len(tokens) - 1] = answer
            rows.append(row)
            targets.append(target)
    return np.stack(rows), np.stack(targets)


def boosted(weights):
    """Starting weights say next to nothing: matrices are made larger, so that margins and gradients have a size."""
    return {name: np.float32(BOOST) * value.astype(np.float32) if value.ndim == 2 else value for name, value in weights.items()}


def log_probabilities(model, tokens, targets):
    """[2S]: what each answer has under a model, counted positions summed."""
    logits = model(torch.tensor(tokens, dtype=torch.long))
    labels = torch.tensor(targets, dtype=torch.long)
    mask = labels != -100
    each = torch.gather(logits.log_softmax(-1), -1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (each * mask).sum(1)


def model_of(dtype, weights):
    model = GPT(CONFIG).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = np.asarray(weights[name], np.float64)
            parameter.copy_(torch.tensor(value.T if transposed(name) else value, dtype=dtype))
    return model


def run(dtype, policy_weights, reference_weights):
    """Log-probabilities, margins, loss and gradients of the first step; losses of some steps of gradient descent."""
    policy, (tokens, targets) = model_of(dtype, policy_weights), batch()
    with torch.no_grad():
        reference = log_probabilities(model_of(dtype, reference_weights), tokens, targets)
    found, losses = {"reference": reference.double().numpy()}, []
    for step in range(STEPS):
        policy.zero_grad()
        logps = log_probabilities(policy, tokens, targets)
        chosen, rejected = logps.chunk(2)
        reference_chosen, reference_rejected = reference.chunk(2)
        delta = (chosen - reference_chosen) - (rejected - reference_rejected)
        loss = -functional.logsigmoid(BETA * delta).mean()
        loss.backward()
        losses.append(loss.item())
        if not step:
            found |= {"margins": (BETA * delta).detach().double().numpy(), "loss": np.array(loss.item())}
            found |= {f"gradient/{name}": ours(name, p.grad) for name, p in policy.named_parameters()}
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter -= RATE * parameter.grad
    return found | {"losses": np.array(losses)}


def main():
    torch.set_num_threads(1)
    start = [boosted(Model(ReferenceMachine(), CONFIG, seed).weights()) for seed in (POLICY_SEED, REFERENCE_SEED)]
    golden, single = run(torch.float64, *start), run(torch.float32, *start)
    about = {
        "torch": torch.__version__,
        "config": CONFIG.to_dict(),
        "weights_sha256": hashlib.sha256(b"".join(np.ascontiguousarray(w, "<f4").tobytes() for w in start[0].values())).hexdigest(),
        "float32_error": {name: float(np.abs(single[name] - value).max()) for name, value in golden.items()},
    }
    np.savez_compressed(FILE, about=np.array(json.dumps(about)), **golden)
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes; margins {golden['margins'].round(3)}, losses {golden['losses'].round(4)}")


if __name__ == "__main__":
    main()
