"""Versions of the open model as a Session does them: which there are, which is on, and going back and forward.

Which one is in use is kept in the run's journal; a run that is opened has it on. Events: improve.versions.
"""

from __future__ import annotations

from ..errors import ConfigError, PostTrainError
from .putting_on import put_on


class Versions:
    """What came of the improvements of the open model; `note` is a sentence on the one in use, where it is not on."""

    def __init__(self, session) -> None:
        self._session = session
        self.note = ""

    def id_of(self, number: int) -> str:
        """Under which id the list of adapters has a version."""
        return f"{self._session.runs.held_id or 'unsaved'}.version-{number}"

    def number_of(self, adapter_id: str | None) -> int | None:
        """The version that an adapter's id stands for, if it does."""
        _, mark, number = (adapter_id or "").rpartition(".version-")
        return int(number) if mark and number.isdecimal() else None

    @property
    def on(self) -> int | None:
        """The version that is on the model."""
        return self.number_of(self._session.adapters.chosen)

    def adapter(self, number: int):
        """A version's adapter. Raises ConfigError, StoreCorruptError."""
        return self._session.improving.records.kept.history.adapter(number)

    def rows(self) -> list[dict]:
        """Promoted versions, and the one that is on, as lines of the list of adapters."""
        try:
            versions = self._session.improving.records.kept.history.list()
        except PostTrainError as error:
            self._session.fail(error)
            return []
        on, rows = self.on, []
        for version in reversed(versions):
            if version.promoted or version.number == on:
                steps = sum(version.settings.get(f"{phase}_steps", 0) for phase in ("sft", "dpo"))
                rows.append(
                    version.settings.get("adapter", {})
                    | {"adapter_id": self.id_of(version.number), "name": f"version {version.number}", "how": "corrections", "fits": True, "kept": False,
                       "step": steps, "steps": steps, "updated": version.created, "note": ""}
                )  # fmt: skip
        return rows

    async def tell(self, identity=None) -> None:
        """improve.history: the versions, newest first; which is in use, and on; what an improvement that was cut off left unfinished."""
        session = self._session
        if session.model is None:
            session.emit("improve.versions", reply_to=identity, run_id=None, versions=[], in_use=None, on=None, unfinished="", note="", idle=self._session.improving.idle)
            return
        history = self._session.improving.records.kept.history
        in_use = history.in_use
        session.emit(
            "improve.versions", reply_to=identity, run_id=session.runs.held_id, versions=[each.to_dict() for each in reversed(history.list())],
            in_use=None if in_use is None else in_use.number, on=self.on, unfinished=self._unfinished(), note=self.note, idle=self._session.improving.idle,
        )  # fmt: skip

    def _unfinished(self) -> str:
        """When an improvement began that never ended (the tab was closed in its middle); "" where none did."""
        if self._session.improving.active:
            return ""
        marks = [each.facts for each in self._session.improving.records.kept.journal.records() if each.facts.get("kind") in ("improving", "improved", "version")]
        return str(marks[-1].get("created", "")) if marks and marks[-1]["kind"] == "improving" else ""

    async def opened(self) -> None:
        """A run was opened at rest: the version in use goes on, where it was made on these very weights."""
        self.note, session = "", self._session
        try:
            version = self._session.improving.records.kept.history.in_use
            if version is None:
                return
            if version.base_sha256 != await session.adapters.base_sha256():
                self.note = f"Version {version.number} was made when this run had other weights, so the base alone is on. Improve again for one of these."
                return
            await self._put(version.number)
        except PostTrainError as error:  # the run itself is open
            session.fail(error)

    async def _put(self, number: int | None) -> None:
        session = self._session
        if number is not None:
            await put_on(session, self.adapter(number))
        elif session.model.lora is not None:
            session.model.strength = 0.0  # the base's very logits
        session.adapters.chosen, session.adapters.strength = None if number is None else self.id_of(number), 1.0

    async def use(self, identity, version: int = 0, aside: bool = False) -> None:
        """improve.use: this version on, and in use from now on; 0 is the base alone. One that was kept aside only with `aside`."""
        session = self._session
        session.adapters.require_rest("version")
        await self.choose(version or None, aside)
        self.note = ""
        await session.adapters.tell()
        await self.tell(identity)

    async def choose(self, number: int | None, aside: bool = False) -> None:
        """Put a version on and in use. Nothing changes where either cannot be."""
        session, history = self._session, self._session.improving.records.kept.history
        if number is not None:
            version = history[number]
            base = await session.adapters.base_sha256()
            if version.base_sha256 != base:
                raise ConfigError(f"version {number}", "the weights that it was made on", "the run has others by now", "improve again for one of these")
            if not version.promoted and not aside:
                history.use(number)  # raises, and says why it was kept aside
        session.stop_writing()
        before = (session.adapters.chosen, session.adapters.strength)
        await self._put(number)
        try:
            in_use = history.in_use
            if (None if in_use is None else in_use.number) != number:
                history.use(number, aside=True)
        except BaseException:
            await self._put(self.number_of(before[0]))
            session.adapters.strength = before[1]
            raise
