"""Corrections of the open model as a Session keeps them: in the held run's journal, or in memory where nothing is saved.

Events: improve.records (a page of them, the newest first, with what may have been learnt of them), improve.planned, exported.
"""

from __future__ import annotations

from ..errors import ConfigError, DataError
from ..tune.continual.curate import CuratedReport, curate
from ..tune.continual.records import Correction, Corrections
from ..tune.continual.settings import divided, part_settings
from .exports import file_name

MOST_LISTED = 200


class Records:
    """Requests about the records; `kept` is the Corrections of what is open."""

    def __init__(self, session) -> None:
        self._session = session
        self._kept: Corrections | None = None
        self._made_with: dict = {}  # what was on, and how it was written, for the text written last

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "improve.record": self._record,
            "improve.list": self.tell,
            "improve.edit": self._edit,
            "improve.delete": self._delete,
            "improve.clear": self._clear,
            "improve.export": self._export,
            "improve.import": self._import,
            "improve.plan": self._plan,
        }

    @property
    def kept(self) -> Corrections:
        """Those of the open model. Raises ConfigError where there is none."""
        session = self._session
        if session.model is None:
            raise ConfigError("corrections", "a model that they are of", "there is none yet", "train one, or open a saved run")
        if self._kept is None:
            self._kept = Corrections(session.runs.journal)
        return self._kept

    @property
    def saved(self) -> bool:
        """Whether they are there after a reload."""
        return self.kept.saved and self._session.host.persistent

    def forget(self) -> None:
        """Another run is held, or none."""
        self._kept, self._made_with = None, {}

    # What is told

    async def tell(self, identity=None, first: int = 0, count: int = 20) -> None:
        """improve.list: `count` of them from the `first` on, the newest first. fresh: those that no improvement has seen yet."""
        if first < 0 or not 1 <= count <= MOST_LISTED:
            raise ConfigError("corrections", f"a page of 1 to {MOST_LISTED} from the first on", f"{count} from {first} came", "ask for fewer")
        session = self._session
        if session.model is None:
            session.emit("improve.records", reply_to=identity, run_id=None, total=0, first=0, rows=[], fresh=0, enough=0, saved=True, note="")
            return
        kept = self.kept
        rows = kept.list()[::-1]
        session.emit(
            "improve.records", reply_to=identity, run_id=session.runs.held_id, total=len(rows), first=first,
            rows=[row.to_dict() for row in rows[first : first + count]], fresh=self.fresh(), enough=part_settings("curate")["least_learned"],
            saved=self.saved, note=kept.journal.recovered,
        )  # fmt: skip

    def fresh(self) -> int:
        """How many have come since the newest version was made."""
        kept = self.kept
        seen = {each for version in kept.history.list() for each in (*version.learned, *version.held_out, *(gone for gone, _ in version.dropped))}
        return sum(row.id not in seen for row in kept.list())

    # Making and changing them

    def writes(self, prompt: str, sampler: dict) -> None:
        """A text is being written: what is on now is what offered it."""
        session = self._session
        self._made_with = {"prompt": prompt, "sampler": sampler, "adapter_id": session.adapters.chosen or "", "version": session.improving.versions.on}

    async def _record(self, identity, what: str, prompt: str, offered: str = "", kept: str = "", note: str = "") -> None:
        """improve.record: what a person made of an answer; it is kept when this is answered."""
        session, corrections = self._session, self.kept
        made = {key: value for key, value in self._made_with.items() if key != "prompt"} if self._made_with.get("prompt") == prompt else {}
        if session.training.active:
            base = ""  # its weights change at every step
        else:
            base = await session.adapters.base_sha256() if not session.tuning.active and not session.improving.active else ""
        row: Correction = corrections.record(what, prompt, offered, kept, note=note, base_sha256=base, **made)
        session.emit("improve.recorded", reply_to=identity, record=row.to_dict(), saved=self.saved)
        await self.tell()

    async def _edit(self, identity, record_id: str, **changes) -> None:
        """improve.edit: other texts; what it was is gone from the disk."""
        self.kept.edit(record_id, **changes)
        await self.tell(identity)

    async def _delete(self, identity, record_ids: list) -> None:
        """improve.delete."""
        if not all(isinstance(each, str) for each in record_ids):
            raise DataError("corrections", "ids of the list", f"{record_ids!r:.80} came", "choose some of the list")
        self.kept.delete(*record_ids)
        await self.tell(identity)

    async def _clear(self, identity) -> None:
        """improve.clear: all of them."""
        self.kept.clear()
        await self.tell(identity)

    async def _export(self, identity) -> None:
        """improve.export: JSONL, oldest first."""
        name = f"{file_name(self._session.runs.held_name)} corrections.jsonl"
        self._session.exports.give(identity, [self.kept.to_jsonl().encode("utf-8")], name)

    async def _import(self, identity, buffer=None, text: str | None = None, name: str = "corrections.jsonl") -> None:
        """improve.import: such a file or text, all of it or none."""
        if text is None:
            if buffer is None:
                raise DataError(name, "a file of corrections", "nothing came", "choose one", code="E-DATA-EMPTY")
            try:
                text = self._session.host.to_bytes(buffer).decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise DataError(name, "a file of text in UTF-8", f"byte {error.start:,} is none", "save it as UTF-8", code="E-DATA-ENCODING") from error
        added = self.kept.add_jsonl(text, name)
        self._session.emit("improve.imported", reply_to=identity, added=len(added))
        await self.tell()

    async def _plan(self, identity, settings: dict | None = None) -> None:
        """improve.plan: what would be learnt, held out and dropped now; `problem` where that is too little."""
        kept, model = self.kept, self._session.model
        parts = divided(settings or {})
        try:
            found = curate(kept, tokenizer=model.tokenizer, context=model.config.context, in_use=kept.history.in_use, settings=parts["curate"])
            told = CuratedReport.of(found).to_dict() | {"problem": ""}
        except DataError as error:
            told = {"learned": 0, "preferences": 0, "held_out": 0, "held_out_preferences": 0, "dropped": [], "notes": [], "problem": error.message}
        told.pop("event", None)
        self._session.emit("improve.planned", reply_to=identity, total=len(kept), **told)
