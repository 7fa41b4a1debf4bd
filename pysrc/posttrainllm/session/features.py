"""Features of the live model as a Session finds them: a sparse autoencoder trained on its activations between other work, then browsed,
taken out as a file, and written with.

Events: features.progress, features.trained, features.outdated, features.list, features.feature, features.token, features.wrote. What was
trained is for the weights it was trained on: while the model has others it is only told of and taken out, and another model forgets it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from ..errors import ConfigError, DeviceError, DeviceOutOfMemoryError
from ..ops.lazy import np
from .exports import file_name
from .messages import finite
from .weights import Weights, weights_now
from .writing import TURN_SECONDS

ROWS, SEEN_TOKENS = 65_536, 16_384
"""Tokens whose activations are trained on, and tokens that features are shown in."""
EVENTS_PER_SECOND = 8
MOST_LISTED = 100
CONTEXTS, MOST_CONTEXTS = 5, 30
"""Shown of a feature, and looked at for as many that differ."""
OPENING_CHARACTERS = 40


class Features:
    """The autoencoder of the live model, if there is one, and what goes on with it."""

    def __init__(self, session) -> None:
        self._session = session
        self._going: AsyncIterator | None = None
        self._request: int | None = None
        self._stopping = False
        self._told = 0.0
        self._model = self._survey = self._machine = None
        self._weights: Weights | None = None
        self._outdated = False
        self._pieces, self._writer, self._tokens = None, None, 0

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "features.train": self._train,
            "features.stop": self._stop,
            "features.list": self._list,
            "features.feature": self._feature,
            "features.export": self._export,
            "features.write": self._write,
            "features.write_stop": self._write_stop,
        }

    async def _train(self, identity, address: str = "", how: str | None = None, **settings) -> None:
        """features.train: address defaults to what the middle block leaves in the stream; `how` is SAESettings' kind, `settings` the rest."""
        from ..study.sae_train import SAESettings
        from ..study.sparse import require_rows, windows

        session = self._session
        if session.model is None:
            raise ConfigError("features", "a model to look into", "there is none yet", "train one, or open a saved run")
        session.refuse_when_busy("features")
        await session.host.load_numpy()
        made, model = SAESettings.of(kind=how, **settings), session.model
        address = address or f"blocks.{model.config.layers // 2}.resid_post"
        place = require_rows(model, address)
        corpus, own = await session.inside.text_to_learn_from()
        windows(corpus.train, model.config.context, 1, 0)  # a text too short is told before anything is lost
        self.forget()
        session.comparing.cancel()  # the adapter counts again
        if hasattr(model.machine, "memory_bytes"):  # of a size that never changes, in a tab: as much as the model needs
            from ..study.running import place_width
            from ..study.sae_engine import need_bytes

            width = place_width(place, model.config)[-1]
            self._machine = await session.host.open_beside(need_bytes(width, made.features, made.batch))
        self._model, self._request, self._stopping, self._told = model, identity, False, 0.0
        self._weights, self._outdated = weights_now(session), False
        self._going = self._steps(model, corpus, own, address, made)

    async def _stop(self, identity) -> None:
        """features.stop: it is browsed as far as it came; before the first step nothing is left."""
        self._stopping = True

    async def _steps(self, model, corpus, own: bool, address: str, made) -> AsyncIterator[dict]:
        """All of it, in pieces of work; each gives a `features.progress`, the last a `features.trained`."""
        from ..study.passes import release_async
        from ..study.recovery import Judge
        from ..study.sparse import reading_async, trainer_on, windows
        from ..study.survey import Survey

        rows, parts = windows(corpus.train, model.config.context, ROWS, made.seed), []
        async for part in reading_async(model, rows, address):
            parts.append(part.reshape(-1, part.shape[-1]))
            yield {"what": "reading", "done": len(parts), "total": -(-len(rows) // max(1, model.config.batch))}
            if self._stopping:
                return
        trainer = trainer_on(model, np.concatenate(parts), address, made, self._machine)
        del parts
        report = None
        while trainer.step < made.steps and not self._stopping:
            report = await trainer.some_async()
            yield {"what": "training", "done": report.step, "total": made.steps} | _figures(report)
        if report is None:
            return
        autoencoder = trainer.autoencoder
        del trainer  # with its rows, the most of what is held here
        survey, stopped = Survey(model, corpus.train, autoencoder, SEEN_TOKENS, machine=self._machine), self._stopping
        # Stopped while training, the rest is worth its seconds; stopped from here on, it makes do with what it has.
        self._stopping = False
        while survey.done < survey.total and not (self._stopping and survey.done):
            await survey.advance_async()
            yield {"what": "looking", "done": survey.done, "total": survey.total}
        judged = corpus.validation if len(corpus.validation) >= model.config.context else corpus.train
        judge = Judge(model, judged, autoencoder, machine=self._machine)
        while judge.done < judge.total and not (self._stopping and judge.done):
            await judge.advance_async()
            yield {"what": "judging", "done": judge.done, "total": judge.total}
        found, stopped = judge.verdict().to_dict(), stopped or self._stopping
        self._survey = survey
        await release_async(model)  # a tab's GPU has little to spare
        yield {
            "what": "trained", "stopped": stopped, "step": self._weights.step, "text": corpus.name, "own_text": own,
            "opening": _opening(model, corpus), "settings": made.to_dict(), "address": address, "features": made.features,
            "alive": len(survey.order()), "seen_tokens": survey.done * survey.rows.shape[1], "recovered": {name: finite(value) for name, value in found.items()},
        } | {"training": _figures(report) | {"step": report.step, "seconds": report.seconds}}  # fmt: skip

    async def turn(self) -> bool:
        """Go on for a short while; False when there is nothing to do."""
        if self._model is None:
            return False
        if self._model is not self._session.model:
            self.forget()
            return True
        self._watch()
        if self._going is None and self._pieces is None:
            return False
        if self._session.comparing.active:  # of the base, for a while
            return False
        await self._session.job.settle()
        try:
            if self._pieces is not None:
                await self._write_on()
            if self._going is not None:
                await self._go_on()
        except DeviceOutOfMemoryError as error:
            self._failed(error)
        except DeviceError:
            self.forget()
            raise  # the session looks for another engine
        except Exception as error:  # noqa: BLE001 - told to the person; training must go on
            self._failed(error)
        return True

    def _watch(self) -> None:
        """The model may have other weights by now: what goes on ends, and what was found is told to be out of date, or so no more."""
        session, now = self._session, weights_now(self._session)
        other = now != self._weights
        if self._going is not None and (other or session.job.active):
            self._going = None
            session.emit("features.trained", reply_to=self._request, stopped=True, features=0, changed=True)
        if self._pieces is not None and (other or session.job.active):
            self._end_text("interrupted")
        if self._survey is not None and other != self._outdated:
            self._outdated = other
            session.emit("features.outdated", outdated=other, trained=other and self._weights.trained_to(now), step=self._weights.step)

    def _failed(self, error: Exception) -> None:
        writing, self._pieces = self._pieces is not None, None
        if not writing:
            self._going = None
        self._session.fail(error, self._writer if writing else self._request)

    async def _go_on(self) -> None:
        began, told = time.perf_counter(), None
        while told is None or time.perf_counter() - began < TURN_SECONDS:
            told = await anext(self._going, None)
            if told is None or told["what"] == "trained":
                break
        if told is None or told["what"] == "trained":
            self._going = None
            self._session.emit("features.trained", reply_to=self._request, **(told or {"stopped": True, "features": 0}))
        elif time.perf_counter() - self._told > 1 / EVENTS_PER_SECOND:
            self._told = time.perf_counter()
            self._session.emit("features.progress", reply_to=self._request, **told)

    def forget(self) -> None:
        """The model goes away, or something else is trained: end what goes on, and let go of what was found."""
        going, self._going = self._going, None
        self._end_text("stopped")
        self._model = self._survey = self._weights = None
        if self._machine is not None:
            self._machine.close()
            self._machine = None
        if going is not None:
            self._session.emit("features.trained", reply_to=self._request, stopped=True, features=0)

    # What was found

    async def _found(self, of_now: bool = True):
        """The survey of features, at rest between two steps. Raises ConfigError where there is none, or (of_now) none of these weights."""
        session = self._session
        if self._survey is None or self._model is not session.model:
            raise ConfigError("features", "features that were found in the open model", "there are none yet", "find some first")
        await session.job.settle()
        if of_now:
            session.comparing.cancel()  # the adapter counts again
            now = weights_now(session)
            if now != self._weights:
                raise ConfigError("features", "features of the model as it is now", self._weights.beside(now), "find them anew")
        return self._survey

    async def _list(self, identity, by: str = "telling", first: int = 0, count: int = 20) -> None:
        """features.list: a page of those that fired, `rows` of {index, density, most}; `by` is one of survey.ORDERS."""
        from ..study.survey import ORDERS

        survey = await self._found()
        if by not in ORDERS:
            raise ConfigError("features", f"by is one of {', '.join(ORDERS)}", f"{by!r} came", "choose one of those")
        if first < 0 or not 1 <= count <= MOST_LISTED:
            raise ConfigError("features", f"a page of 1 to {MOST_LISTED} from the first on", f"{count} from {first} came", "ask for fewer")
        order, density, most = survey.order(by), survey.density, survey.most
        rows = [{"index": int(each), "density": float(density[each]), "most": float(most[each])} for each in order[first : first + count]]
        self._session.emit("features.list", reply_to=identity, by=by, first=first, total=len(order), rows=rows)

    async def _feature(self, identity, index: int) -> None:
        """features.feature: {index, density, most, contexts: [{labels, activations, at}], promotes, suppresses: [[label, logit]]}."""
        survey = await self._found()
        self._require(survey, index)
        told = (await survey.feature_async(index)).to_dict()
        if len(_unlike(told["contexts"])) < len(told["contexts"]):  # a text that repeats itself: look farther
            told = (await survey.feature_async(index, contexts=MOST_CONTEXTS)).to_dict()
        self._session.emit("features.feature", reply_to=identity, **(told | {"contexts": _unlike(told["contexts"])[:CONTEXTS]}))

    @staticmethod
    def _require(survey, index: int) -> None:
        if not 0 <= index < survey.autoencoder.features:
            raise ConfigError("features", f"a feature from 0 to {survey.autoencoder.features - 1}", f"{index} came", "choose one of those")

    async def _export(self, identity) -> None:
        """features.export: SAELens' two files in a zip, named after the step that they are of."""
        import io
        import zipfile

        survey, session, packed = await self._found(of_now=False), self._session, io.BytesIO()
        name = next((row["name"] for row in await session.runs.rows() if row.get("live")), "model")
        with zipfile.ZipFile(packed, "w") as archive:
            for member, data in survey.autoencoder.to_files(model_name=name).items():
                archive.writestr(zipfile.ZipInfo(member), data)
        step = "" if self._weights.step is None else f" step {self._weights.step}"
        session.exports.give(identity, [packed.getvalue()], f"{file_name(name)}{step} features.zip")

    # Writing with one of them

    async def _write(self, identity, prompt: str, index: int, strength: float, tokens: int = 100, **sampler) -> None:
        """features.write: continue a prompt with `strength` times a feature's direction added at every token."""
        from ..decode.generate import write_async
        from ..study import steer

        self._session.refuse_when_busy("write")
        survey = await self._found()
        self._require(survey, index)
        self._end_text("stopped")
        self._pieces = write_async(steer(self._model, survey.autoencoder, index, strength), prompt, tokens, **sampler)
        self._writer, self._tokens = identity, 0

    async def _write_stop(self, identity) -> None:
        """features.write_stop."""
        self._end_text("stopped")

    async def _write_on(self) -> None:
        began, text, reason = time.perf_counter(), "", None
        while reason is None and time.perf_counter() - began < TURN_SECONDS:
            piece = await anext(self._pieces)
            text += piece.text
            self._tokens, reason = piece.tokens, piece.reason
        if text:
            self._session.emit("features.token", reply_to=self._writer, text=text, tokens=self._tokens)
        if reason:
            self._end_text(reason)

    def _end_text(self, reason: str) -> None:
        if self._pieces is not None:
            self._pieces = None
            self._session.emit("features.wrote", reply_to=self._writer, tokens=self._tokens, reason=reason)


def _unlike(contexts: list[dict]) -> list[dict]:
    """Those whose text as shown did not come before."""
    first: dict[tuple, dict] = {}
    for each in contexts:
        first.setdefault(tuple(each["labels"]), each)
    return list(first.values())


def _opening(model, corpus) -> str:
    """How a text begins: its first line, or that line's first words; what to begin writing with, where nothing else is said."""
    text = model.tokenizer.decode([int(each) for each in corpus.train[: 2 * OPENING_CHARACTERS]]).lstrip()
    line = text.split("\n")[0]
    return line if len(line) <= OPENING_CHARACTERS else line[:OPENING_CHARACTERS].rsplit(" ", 1)[0]


def _figures(report) -> dict:
    names = ("l0", "explained", "squared_error", "dead", "resampled")
    return {name: finite(getattr(report, name)) for name in names}
