"""Who decodes beside the plain loop: a model with a draft, and `transformers` with the same weights."""

from __future__ import annotations

import time

from posttrainllm.decode.generate import write
from posttrainllm.model.live import GPT

PROMPT = "ROMEO:"


class Drafted:
    """Two saved models, "model.safetensors+draft.safetensors", on `threads` threads; greedy."""

    def __init__(self, paths: str, threads: int) -> None:
        self.model, self.draft = (GPT.load(path, device="cpu", threads=threads) for path in paths.split("+"))

    def sizes(self) -> dict:
        """What is measured."""
        return {
            name: {"parameters": model.config.parameter_count()} | model.config.to_dict()
            for name, model in (("model", self.model), ("draft", self.draft))
        }

    def run(self, tokens: int, ahead: int) -> dict:
        """Write `tokens` tokens, without the draft where ahead is 0: {"ms", "cpu_ms", "tokens", "text", "acceptance"}."""
        how = {"draft": self.draft, "ahead": ahead} if ahead else {}
        self.model.forget_cache()
        self.draft.forget_cache()
        began, busy = time.perf_counter(), time.process_time()
        pieces = list(write(self.model, PROMPT, tokens, temperature=0, **how))
        found = {"ms": 1000 * (time.perf_counter() - began), "cpu_ms": 1000 * (time.process_time() - busy), "tokens": tokens}
        seen = pieces[-1].acceptance
        if seen:
            found["acceptance"] = {
                "proposed": seen.proposed, "accepted": seen.accepted, "passes": seen.passes,
                "rate": round(seen.rate, 3), "tokens_per_pass": round(seen.tokens_per_pass, 2),
                "draft_share": round(seen.draft_seconds / (seen.draft_seconds + seen.model_seconds), 3),
            }  # fmt: skip
        return found | {"text": "".join(piece.text for piece in pieces)}


class Ours:
    """A preset with weights as made from a seed: greedy within the context, as `Transformers` does."""

    def __init__(self, preset: str, threads: int) -> None:
        self.model = GPT.create(preset, device="cpu", threads=threads, training=False)

    def run(self, tokens: int) -> dict:
        """Write `tokens` tokens from an empty cache: {"ms", "tokens", "text"}."""
        self.model.forget_cache()
        began = time.perf_counter()
        text = "".join(piece.text for piece in write(self.model, PROMPT, tokens, temperature=0))
        return {"ms": 1000 * (time.perf_counter() - began), "tokens": tokens, "text": text}


class Transformers:
    """The same weights in transformers' GPT2LMHeadModel: generate, greedy, with its cache."""

    def __init__(self, preset: str, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch, self.versions = torch, {"torch": torch.__version__, "transformers": transformers.__version__}
        model = GPT.create(preset, device="cpu", threads=1, training=False)
        config, self.tokenizer = model.config, model.tokenizer
        self.peer = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=config.vocabulary, n_positions=config.context, n_embd=config.channels, n_layer=config.layers,
                n_head=config.heads, activation_function="gelu_new", bos_token_id=None, eos_token_id=None, pad_token_id=None,
            )  # fmt: skip
        ).eval()
        weights = {their_name(name): self._tensor(model, name) for name in model.weight_names()}
        missing, unknown = self.peer.load_state_dict(weights, strict=False)
        if unknown or set(missing) - {"lm_head.weight"}:  # the head is the embedding
            raise RuntimeError(f"weights do not fit: {missing} are missing, {unknown} are unknown")
        model.close()

    def _tensor(self, model: GPT, name: str):
        shape = next(each.shape for each in model.program.layout.parameters if each.name == name)
        return self.torch.frombuffer(bytearray(model.weight_bytes(name)), dtype=self.torch.float32).reshape(shape)

    def about(self) -> dict:
        """Versions."""
        return self.versions

    def run(self, tokens: int) -> dict:
        """Generate `tokens` tokens: {"ms", "tokens", "text"}."""
        given = self.torch.tensor([list(self.tokenizer.encode(PROMPT))])
        mask = self.torch.ones_like(given)
        with self.torch.inference_mode():
            began = time.perf_counter()
            out = self.peer.generate(
                given, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True
            )
        ms = 1000 * (time.perf_counter() - began)
        return {"ms": ms, "tokens": out.shape[1] - given.shape[1], "text": self.tokenizer.decode(out[0, given.shape[1] :].tolist())}


def their_name(name: str) -> str:
    """A weight's name in transformers' GPT-2. Both store linear weights as (in, out)."""
    for ours, theirs in (("blocks.", "h."), ("attn.qkv", "attn.c_attn"), ("attn.proj", "attn.c_proj"), ("mlp.fc", "mlp.c_fc"), ("mlp.proj", "mlp.c_proj")):
        name = name.replace(ours, theirs)
    return f"transformer.{name}"
