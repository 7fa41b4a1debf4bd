"""A tuned lens of the live model, trained between other work, for the Inside view's layers.

Events: lens.step (at most eight a second), lens.trained. It is for the weights it was trained on: others have none.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from ..errors import ConfigError, DeviceError
from .messages import finite
from .weights import weights_now

EVENTS_PER_SECOND = 8


class Lenses:
    """The tuned lens that there is, if any, and the training of one."""

    def __init__(self, session) -> None:
        self._session = session
        self._going: AsyncIterator | None = None
        self._trainer = self._state = None
        self._request: int | None = None
        self._told = 0.0
        self._stopping = False
        self._text, self._own = "", True

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"lens.train": self._train, "lens.stop": self._stop}

    def _now(self) -> tuple:
        """What the weights are those of."""
        return self._session.model, weights_now(self._session)

    def lens(self):
        """The TunedLens of the live model as it stands. Raises ConfigError where there is none."""
        if self._trainer is None or self._going is not None or self._state != self._now():
            raise ConfigError("lens", "a tuned lens of these weights", "there is none", "train one first")
        return self._trainer.lens

    async def _train(self, identity, steps: int = 200) -> None:
        """lens.train: so many steps on the text that the model was trained on; the model itself stays as it is."""
        from ..study.tuned_lens import LensTrainer

        session = self._session
        session.refuse_when_busy("lens")
        model = await session.inside.model_at_rest()
        text, self._own = await session.inside.text_to_learn_from()
        self._text = text.name
        self._trainer = LensTrainer(model, text.train, steps)
        self._going, self._state, self._request = self._trainer.run_async(), self._now(), identity
        self._stopping, self._told = False, 0.0

    async def _stop(self, identity) -> None:
        """lens.stop: what was learned so far is kept."""
        self._stopping = True

    def forget(self) -> None:
        """The model goes away: end what goes on, and let go of its lens."""
        going, steps = self._going, self._trainer.step if self._trainer is not None else 0
        self._going = self._trainer = self._state = None
        if going is not None:
            self._session.emit("lens.trained", reply_to=self._request, steps=steps, usable=False)

    async def turn(self) -> bool:
        """A step; False when there is none to make."""
        if self._going is None or self._session.comparing.active:  # which is of the base, for a while
            return False
        session, report = self._session, None
        same = self._state == self._now() and not session.job.active
        if same and not self._stopping:
            try:
                report = await anext(self._going, None)
            except DeviceError:
                self._going = self._trainer = None
                raise  # the session looks for another engine
            except Exception as error:  # noqa: BLE001 - told to the person
                self._going = self._trainer = None
                session.fail(error, self._request)
                return True
        now = time.perf_counter()
        if report is not None and now - self._told >= 1 / EVENTS_PER_SECOND:
            self._told = now
            session.emit("lens.step", reply_to=self._request, step=report.step, steps=report.steps, divergence_nats=_plain(report.divergence_nats))
        if report is None:
            steps, self._going = self._trainer.step, None
            if not same:
                self._trainer = None  # the model has changed meanwhile
            session.emit("lens.trained", reply_to=self._request, steps=steps, usable=same and steps > 0, text=self._text, own_text=self._own)
        return True


def _plain(values) -> list:
    return [finite(float(each)) for each in values]
