"""Looking inside the live model from a session: each request runs a typed text through it between two steps and answers with an event.

Events, all with `text_tokens`, `labels` (the tokens as a person reads them) and the model's `step`: inside.attention (patterns of a layer),
inside.heads (what each head looks at; without a text), inside.lens, inside.next, inside.change (ablation and patching), inside.flow.
Long rows of numbers travel as one buffer of float32, little-endian: `arrays` is [name, shape] of each in turn.
"""

from __future__ import annotations

import asyncio
import math
import time

from ..errors import ConfigError, DataError
from ..ops.lazy import np
from .messages import finite
from .weights import weights_now

MOST_TOKENS = 512
"""Of a text: as many as can be drawn, and as patterns of all heads fit memory."""
MOST_SECONDS = 20.0
"""Of a map of changes: it is of one moment of the model, so nothing trains meanwhile, and Stop waits."""
CHOICES = 10
LENS_CHOICES = 5
HOW = ("zero", "mean", "swap")
FLOW = ("ln_1", "attn.q", "attn.k", "attn.v", "attn.y", "attn.out", "resid_mid", "ln_2", "mlp.pre", "mlp.post", "mlp.out", "resid_post")
"""What a token's numbers pass through in each block, in order."""
FLOW_SHOWN = 6
FLOW_PASSES = 12
"""In which all blocks are read: what a block keeps of every position is more than memory has for all of a deep model's."""
QUIET_SECONDS, TOLD_SECONDS = 0.4, 0.15
"""Until a map in the making is first told of, and from one time to the next."""


class _Ended(Exception):
    """A map is not wanted any more."""


class Inside:
    """Handlers alone: nothing goes on between two requests but the head scores of weights that have not changed."""

    def __init__(self, session) -> None:
        self._session = session
        self._scored: tuple = (None, None)

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "inside.attention": self._attention,
            "inside.heads": self._heads,
            "inside.lens": self._lens,
            "inside.next": self._next,
            "inside.change": self._change,
            "inside.stop": self._stop,
            "inside.flow": self._flow,
        }

    def forget(self) -> None:
        """The model goes away."""
        self._scored = (None, None)

    async def model_at_rest(self):
        """The live model at rest between two steps. Raises ConfigError where there is none."""
        session = self._session
        if session.model is None:
            raise ConfigError("inside", "a model to look into", "there is none yet", "train one, or open a saved run")
        session.comparing.cancel()  # the adapter counts again
        await session.host.load_numpy()
        await session.job.settle()
        return session.model

    async def ready(self, text: str):
        """(model, tokens [T]) of a request with a text. Raises DataError."""
        from ..study.running import tokens_of

        model = await self.model_at_rest()
        count, context = len(list(model.tokenizer.encode(text))), model.config.context
        if not count:
            raise DataError("There is no text. Type some.")
        if count > min(context, MOST_TOKENS):
            who = "this model reads" if context <= MOST_TOKENS else "this view shows"
            raise DataError(f"The text has {count:,} tokens; {who} 1 to {min(context, MOST_TOKENS)} at once. Shorten it.")
        return model, tokens_of(model, text)

    def tell(self, kind: str, identity, model, tokens, arrays: dict | None = None, **fields) -> None:
        """Answer with an event inside.<kind>: the fields, the text's tokens, the model's layers, heads and step, and arrays as a buffer."""
        from ..study.running import labels_of

        session, buffer = self._session, None
        if arrays:
            flat = [np.ascontiguousarray(array, "<f4") for array in arrays.values()]
            data = b"".join(array.tobytes() for array in flat)
            buffer = session.host.join([data], len(data))
            fields["arrays"] = [[name, list(array.shape)] for name, array in zip(arrays, flat)]
        if tokens is not None:
            fields |= {"text_tokens": tokens.tolist(), "labels": labels_of(model, tokens)}
        config, trainer = model.config, session.job.trainer
        step = trainer.step if trainer is not None and trainer.model is model else None
        session.emit(f"inside.{kind}", buffer, reply_to=identity, layers=config.layers, heads=config.heads, step=step, **fields)

    async def _attention(self, identity, text: str, layer: int = 0) -> None:
        """inside.attention: `pattern` [H,T,T] of one layer; each row is where a position looks, and sums to 1."""
        from ..study import run_async

        model, tokens = await self.ready(text)
        if not 0 <= layer < model.config.layers:
            raise ConfigError("inside", f"a layer from 0 to {model.config.layers - 1}", f"{layer} came", "choose one of the model's")
        address = f"blocks.{layer}.attn.pattern"
        found = await run_async(model, tokens, address)
        self.tell("attention", identity, model, tokens, {"pattern": found[address]}, layer=layer)

    async def _heads(self, identity) -> None:
        """inside.heads: `named` heads ({layer, head, kind, score, meaning}), all `scores` by kind [L][H], what is had by chance."""
        from ..study import head_scores_async
        from ..study.attention import MEANINGS

        model = await self.model_at_rest()
        state = (model, weights_now(self._session))
        if self._scored[0] != state or self._session.job.active:
            self._scored = (state, await head_scores_async(model, pool=await self._known_tokens()))
        found = self._scored[1]
        named = [
            {"layer": layer, "head": head, "kind": kind, "score": score, "meaning": MEANINGS[kind]} for layer, head, kind, score in found.named
        ]
        scores = {kind: each.tolist() for kind, each in found.scores.items()}
        self.tell("heads", identity, model, None, named=named, scores=scores, chance=found.chance, meanings=MEANINGS)

    async def _known_tokens(self):
        """Tokens of the text that the model was trained on, each once; None where it is not here. What heads do with others, which they
        never met, says nothing of their habits."""
        text = await self._session.tuning.base_text()
        return None if text is None else np.unique(np.asarray(text.train))

    async def text_to_learn_from(self) -> tuple:
        """(Corpus as the live model's tokens, whether it is what the model learned from): what a model does shows on other texts too, so
        where its own is not here, or it names none, the text under Text serves. Raises DataError where that does not fit the model."""
        session, own = self._session, await self._session.tuning.base_text()
        if own is not None:
            return own, True
        if session.corpus is None:
            session.corpus = await session.host.bundled_corpus()
        found = session.corpus.tokens(session.model.tokenizer)
        found.check(session.model.config)
        return found, False

    async def _lens(self, identity, text: str, which: str = "plain") -> None:
        """inside.lens: through the plain lens or the tuned one (lenses.py). Rows of layers (the embedding, then each block) by positions: `top_labels` and `top_probability` of the
        likeliest, `probability` and `rank` of the token that came next (-1 where none came), `loss_nats` by row."""
        from ..study import logit_lens_async

        model, tokens = await self.ready(text)
        if which not in ("plain", "tuned"):
            raise ConfigError("inside", "which is plain or tuned", f"{which!r} came", "choose one of those")
        tuned = self._session.lenses.lens() if which == "tuned" else None
        found = await logit_lens_async(model, tokens, LENS_CHOICES, tuned=tuned)
        arrays = {"top_probability": found.top_probability, "probability": np.nan_to_num(found.probability, nan=-1.0), "rank": found.rank}
        self.tell(
            "lens", identity, model, tokens, arrays, which=which, rows=found.layers, top_labels=found.top_labels,
            loss_nats=[finite(float(each)) for each in found.loss_nats],
        )  # fmt: skip

    async def _next(self, identity, text: str, position: int = -1) -> None:
        """inside.next: the likeliest tokens after a position, their probability at each layer (`by_layer` [L+1][K]), and what each
        part adds to their logits (`contribution` [parts][K], whose columns sum to the logits)."""
        from ..study import next_token_async

        model, tokens = await self.ready(text)
        found = await next_token_async(model, tokens, position, CHOICES)
        at = found.position
        self.tell(
            "next", identity, model, tokens, position=at, choice_tokens=found.tokens.tolist(), choices=found.labels, rows=found.layers,
            probability=found.probability.tolist(), logits=found.logits.tolist(), by_layer=found.by_layer.tolist(), parts=found.adds.parts,
            contribution=found.adds.contribution.tolist(), came=int(tokens[at + 1]) if at + 1 < len(tokens) else None,
        )  # fmt: skip

    async def _change(self, identity, text: str, what: str = "heads", how: str = "zero", source: str = "", position: int = -1) -> None:
        """inside.change: a map [L, columns] of what taking away each part (zero, mean), or swapping in that of `source`, does to the
        logit difference at `position` and to the loss. `what` as in study.ablate. Meanwhile inside.progress {done, total} of its passes;
        inside.stop, or another map that is asked for, ends it with inside.stopped."""
        from ..study import ablate_async, patch_async

        if how not in HOW:
            raise ConfigError("inside", f"how is one of {', '.join(HOW)}", f"{how!r} came", "choose one of those")
        model, tokens = await self.ready(text)
        self._require_time(model, what, len(tokens))
        between = self._between(identity)
        try:
            if how == "swap":
                found = await patch_async(model, tokens, source, what, position=position, between=between)
            else:
                found = await ablate_async(model, tokens, what, how, position=position, between=between)
        except _Ended:
            self._session.emit("inside.stopped", reply_to=identity)
            return
        arrays = {"change": found.change, "loss_change": np.nan_to_num(found.loss_change, nan=0.0)}
        self.tell(
            "change", identity, model, tokens, arrays, what=what, how=how, columns=found.columns, position=found.position, answer=found.answer,
            other=found.other, before=[finite(each) for each in found.before], source=found.source and [finite(each) for each in found.source],
        )  # fmt: skip

    def _between(self, identity):
        """What a map awaits between its passes: requests come in, and some end it."""
        session, told = self._session, time.perf_counter() + QUIET_SECONDS - TOLD_SECONDS

        async def between(done: int, total: int) -> None:
            nonlocal told
            if (now := time.perf_counter()) - told >= TOLD_SECONDS:
                told = now
                session.emit("inside.progress", reply_to=identity, done=done, total=total)
            await asyncio.sleep(0)
            if done < total and (session.waits("inside.stop") or session.waits("inside.change")):
                raise _Ended

        return between

    async def _stop(self, identity) -> None:
        """inside.stop: a map in the making has seen this waiting, and ended."""

    def _require_time(self, model, what: str, time: int) -> None:
        """Raise DataError for a map that would hold up everything else for too long."""
        from ..study.effects import PARTS
        from ..study.passes import padded

        config, rate = model.config, self._session.rate_flops
        across = PARTS.get(what, ("", "layer"))[1]
        columns = {"head": config.heads, "position": time}.get(across, 1)
        tokens = config.layers * columns * padded(time, config.context)
        seconds = self._session.flops_of_step() / 3 * tokens / (config.batch * config.context) / rate if rate else 0.0
        if seconds > MOST_SECONDS:
            raise DataError(
                "inside", f"a map is made in at most {MOST_SECONDS:.0f} s", f"this one would take about {seconds:,.0f} s",
                "shorten the text, or change heads or whole layers",
            )  # fmt: skip

    async def _flow(self, identity, text: str, position: int = -1) -> None:
        """inside.flow: a token's own numbers on their way, one row a place: {address, shape, first, mean, deviation, least, most}, and
        all of them in the array of that name; `looks` [L,H,T]: where each head looks from there; `top`: the likeliest next tokens."""
        from ..study import run_async
        from ..study.running import labels_of, softmax

        model, tokens = await self.ready(text)
        if not -len(tokens) <= position < len(tokens):
            raise DataError("inside", f"a position from 0 to {len(tokens) - 1}", f"{position} came", "choose one in the text")
        at = position % len(tokens)
        seen = tokens[: at + 1]  # a position sees none after it
        arrays, looks = {"embed": (await run_async(model, seen, "embed"))["embed"][-1]}, []
        layers, several = model.config.layers, -(-model.config.layers // FLOW_PASSES)
        for first in range(0, layers, several):
            together = range(first, min(first + several, layers))
            found = await run_async(model, seen, [f"blocks.{layer}.{name}" for layer in together for name in FLOW])
            arrays |= {name: each[-1] for name, each in found.items()}
            for layer in together:
                q, k = (found[f"blocks.{layer}.attn.{name}"].astype(np.float64) for name in "qk")
                looks.append(softmax(np.einsum("hd,thd->ht", q[-1], k) / math.sqrt(model.config.head_width)))
        found = await run_async(model, seen, ["ln_f", "logits"])
        arrays |= {name: found[name][-1] for name in ("ln_f", "logits")}
        shares = softmax(arrays["logits"].astype(np.float64))
        best = np.argsort(-shares, kind="stable")[:FLOW_SHOWN]
        top = [[int(token), label, float(shares[token]), float(arrays["logits"][token])] for token, label in zip(best, labels_of(model, best))]
        rows = [_row(name, each) for name, each in arrays.items()]
        self.tell("flow", identity, model, tokens, arrays | {"looks": np.stack(looks)}, position=at, rows=rows, top=top)


def _row(address: str, values) -> dict:
    flat = values.astype(np.float64).ravel()
    figures = {"mean": flat.mean(), "deviation": flat.std(), "least": flat.min(), "most": flat.max()}
    first = [finite(float(each)) for each in flat[:FLOW_SHOWN]]
    return {"address": address, "shape": list(values.shape), "first": first} | {name: finite(float(each)) for name, each in figures.items()}
