"""Versions: each adapter that came of an improvement, with what it learnt from, its figures and the gate's reasons; and the one in use.

A version is one record of the journal, its adapter's bytes with it, and a promoted one is in use from that record on: a kill before it
leaves the version before in use. Going back is a record too, so nothing of the history is ever rewritten.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields

from ...errors import ConfigError, FormatError, PostTrainError, StoreCorruptError
from ...model.lora import Adapter, LoRAConfig, shapes
from ...store.journal import Journal
from ...store.safetensors import SafeTensors, encode
from ...waiting import now

ABOUT = "posttrainllm.version"


@dataclass(frozen=True)
class Version:
    """One improvement. learned: the ids of the corrections it was trained on, each with the first 16 digits of the sha256 of their texts (a
    correction that was edited since has another); held_out: of those it was judged by. parent: the version that was in use then, None for
    the base alone. reasons: why the gate kept it aside, none where it promoted it. figures: what the gate measured (gate.Figures).
    """

    number: int
    created: str
    promoted: bool
    reasons: tuple[str, ...]
    figures: dict
    learned: dict[str, str]
    held_out: dict[str, str]
    texts_sha256: str
    parent: int | None
    base_sha256: str
    adapter_sha256: str
    settings: dict = field(default_factory=dict)
    dropped: tuple[tuple[str, str], ...] = ()
    corpus: dict = field(default_factory=dict)
    template: dict = field(default_factory=dict)
    adapter_id: str = ""
    note: str = ""

    def to_dict(self) -> dict:
        """JSON."""
        return asdict(self)


_NAMES = tuple(each.name for each in fields(Version))


def adapter_sha256(adapter: Adapter) -> str:
    """The sha256 of an adapter's weights: their bytes in the order of the buffers."""
    digest = hashlib.sha256()
    for name in shapes(adapter.sizes, adapter.config):
        digest.update(adapter.weights[name])
    return digest.hexdigest()


class History:
    """The versions in a journal, oldest first."""

    def __init__(self, journal: Journal, clock: Callable[[], str]):
        self.journal, self._clock = journal, clock

    def __len__(self) -> int:
        return len(self.list())

    def __iter__(self):
        return iter(self.list())

    def __getitem__(self, number: int) -> Version:
        """Raises ConfigError."""
        return self._find(number)[0]

    def list(self) -> list[Version]:
        """All of them, those kept aside too."""
        return [_version(record.facts) for record in self.journal.records() if record.facts.get("kind") == "version"]

    @property
    def in_use(self) -> Version | None:
        """The version in use; None for the base alone."""
        number = None
        for record in self.journal.records():
            if record.facts.get("kind") == "use" or (record.facts.get("kind") == "version" and record.facts.get("promoted")):
                number = record.facts.get("number")
        return None if number is None else self[number]

    def adapter(self, number: int) -> Adapter:
        """The adapter of a version, its bytes as they were trained. Raises ConfigError, StoreCorruptError."""
        version, data = self._find(number)
        try:
            found = unpacked(data)
        except PostTrainError as error:
            raise _corrupt(number) from error
        if adapter_sha256(found) != version.adapter_sha256:
            raise _corrupt(number)
        return found

    def add(self, adapter: Adapter, **facts) -> Version:
        """Keep a version; promoted, it is in use when this returns. `facts` are Version's other fields. Raises StoreError, and nothing has changed."""
        number = 1 + max((version.number for version in self), default=0)
        adapter = adapter.renamed(f"version {number}")
        version = Version(number, self._clock(), adapter_sha256=adapter_sha256(adapter), base_sha256=adapter.base_sha256, **facts)
        self.journal.append({"kind": "version"} | _finite(version.to_dict()), packed(adapter))
        return self[number]

    def use(self, number: int | None, aside: bool = False) -> Version | None:
        """Put a version in use (None: the base alone); it is on a model once `put_on` puts it there. One that was kept aside is only
        taken with aside=True. Raises ConfigError, StoreError."""
        version = None if number is None else self[number]
        if version is not None and not version.promoted and not aside:
            raise ConfigError(
                f"version {number}", "a version that the gate promoted", f"this one was kept aside: {' '.join(version.reasons)}",
                "choose another, or take it all the same (aside=True; --aside on the command line)",
            )  # fmt: skip
        if version is not None:
            self.adapter(number)  # one that cannot be read is never in use
        self.journal.append({"kind": "use", "number": number, "created": self._clock()})
        return version

    async def put_on_async(self, model, number: int | None) -> None:
        """Put a version's adapter on a live model, byte for byte; None takes any adapter off. Raises ConfigError where it was made on
        other weights: the model is then as it was."""
        if number is None:
            if model.lora is not None:
                await model.detach_async()
            return
        await model.attach_async(self.adapter(number), training=False)

    def put_on(self, model, number: int | None) -> None:
        """`put_on_async`, from plain code."""
        now(self.put_on_async(model, number))

    async def roll_back_async(self, model, number: int | None, aside: bool = False) -> Version | None:
        """Put a version on the model, and in use; None: the base alone. Nothing changes where either cannot be."""
        version = None if number is None else self[number]
        before = await model.adapter_async()
        await self.put_on_async(model, number)
        try:
            return self.use(number, aside) or version
        except BaseException:
            await (model.detach_async() if before is None and model.lora is not None else _back(model, before))
            raise

    def roll_back(self, model, number: int | None, aside: bool = False) -> Version | None:
        """`roll_back_async`, from plain code."""
        return now(self.roll_back_async(model, number, aside))

    def set_adapter_id(self, number: int, adapter_id: str) -> None:
        """Remember under which id a list of adapters keeps a version's."""
        self[number]  # raises where there is none
        records = [
            record._replace(facts=record.facts | {"adapter_id": adapter_id}) if _is(record.facts, number) else record for record in self.journal.records()
        ]
        self.journal.rewrite(records)

    def compare(self, one: int, other: int) -> dict:
        """Two versions side by side: {"figures": {name: (one's, other's)}, "settings": those that differ, "learned": {"both", "only_one",
        "only_other"} of ids}. Raises ConfigError."""
        a, b = self[one], self[other]
        names = dict.fromkeys([*a.settings, *b.settings])
        return {
            "figures": {name: (a.figures.get(name), b.figures.get(name)) for name in dict.fromkeys([*a.figures, *b.figures])},
            "settings": {name: (a.settings.get(name), b.settings.get(name)) for name in names if a.settings.get(name) != b.settings.get(name)},
            "learned": {
                "both": [each for each in a.learned if each in b.learned],
                "only_one": [each for each in a.learned if each not in b.learned],
                "only_other": [each for each in b.learned if each not in a.learned],
            },
        }

    def _find(self, number: int) -> tuple[Version, bytes]:
        for record in self.journal.records():
            if _is(record.facts, number):
                return _version(record.facts), record.data
        raise ConfigError("versions", f"there are {[version.number for version in self]}", f"{number!r} came", "choose one of them")


async def _back(model, before: Adapter | None) -> None:
    if before is not None:
        await model.attach_async(before, training=False, any_base=True)


def _is(facts: dict, number: int) -> bool:
    return facts.get("kind") == "version" and facts.get("number") == number


def _version(facts: dict) -> Version:
    values = {name: facts[name] for name in _NAMES if name in facts}
    try:
        whole = type(values["number"]) is int and all(isinstance(values[name], dict) for name in ("figures", "learned", "held_out"))
        if not whole or not all(isinstance(each, str) for each in (values["created"], values["adapter_sha256"], *values["reasons"])):
            raise TypeError("a field of another type")
        return Version(**values | {"reasons": tuple(values["reasons"]), "dropped": tuple(map(tuple, values.get("dropped", ())))})
    except (KeyError, TypeError) as error:
        raise StoreCorruptError(
            "versions", "each record has a version's fields", f"one has not ({repr(error)[:100]})", "update the package; nothing was changed"
        ) from error


def _corrupt(number: int) -> StoreCorruptError:
    return StoreCorruptError(f"version {number}", "its adapter has the sha256 that it was kept with", "it has another", "use another version")


def _finite(value):
    """JSON has no NaN: a figure that is none becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def packed(adapter: Adapter) -> bytes:
    """An adapter as one .safetensors of its own names: exactly its bytes, unlike PEFT's layout, which moves them about."""
    about = {"name": adapter.name, "lora": adapter.config.to_dict(), "model": adapter.model, "base_sha256": adapter.base_sha256}
    tensors = [(name, "F32", shape, adapter.weights[name]) for name, shape in shapes(adapter.sizes, adapter.config).items()]
    return b"".join(map(bytes, encode(tensors, {ABOUT: json.dumps(about)})))


def unpacked(data: bytes) -> Adapter:
    """The adapter of such bytes. Raises FormatError, ConfigError."""
    parsed = SafeTensors(data, "version")
    try:
        about = json.loads(parsed.metadata[ABOUT])
        lora = LoRAConfig.from_dict(about["lora"])
        weights = {name: bytes(tensor.view()) for name, tensor in parsed.tensors.items()}
        return Adapter(about["name"], lora, about["model"], about["base_sha256"], weights)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("version", "its metadata describes its adapter", f"it does not ({error})", "use another version") from error
