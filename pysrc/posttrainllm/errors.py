"""Every error this package raises, as one tree. Each is a sentence with a short, stable code.

    PostTrainError
    ├── UserError        what a person or caller gave: ConfigError, ShapeError, DataError, FormatError
    ├── DeviceError      the engine: unavailable, lost, out of memory, over a limit
    ├── NumericsError    the numbers: non-finite, or a self-test that failed
    └── StoreError       saved runs: corrupt, version, quota, missing, busy

A message says, in this order: the place or op; the rule; what came, by name; what to do. Give the four parts:

    raise ShapeError("linear", "x has as many columns as weight has rows", "x is (4, 3), weight is (5, 2)",
                     "pass x with 5 columns")
    # linear: x has as many columns as weight has rows; x is (4, 3), weight is (5, 2); pass x with 5 columns.

or one finished sentence. `code=` names the exact case among the class's `codes`; without it the class's own code holds.
`python -m posttrainllm.errors` prints docs/errors.md from this file.
"""

_LONGEST = 500  # characters of what came: it may be all of a file


class PostTrainError(Exception):
    """Any error of this package: `.code`, `.kind` (user, device, numerics, store), and `str(error)`, the sentence."""

    kind = "error"
    code = "E-ERROR"
    codes: dict[str, str] = {"E-ERROR": "an error without a more exact place in this list"}

    def __init__(self, place: str, rule: str = "", came: str = "", remedy: str = "", *, code: str | None = None):
        came = came if len(came) <= _LONGEST else f"{came[: _LONGEST - 1]}…"
        self.parts = (place, rule, came, remedy)
        tail = "; ".join(part.rstrip(". ") for part in (rule, came, remedy) if part)
        sentence = f"{place}: {tail}" if tail else place
        super().__init__(sentence if sentence.endswith((".", "!", "?")) else sentence + ".")
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        return self.args[0]

    def to_event(self) -> dict[str, str]:
        """What goes over the wire to a page or a JSON log: {"code", "message", "kind"}."""
        return {"code": self.code, "message": self.message, "kind": self.kind}

    def __reduce__(self):  # pickle must keep the code: torchrun carries errors between processes
        return _rebuild, (type(self), self.parts, self.code)


def _rebuild(cls, parts, code):
    return cls(*parts, code=code)


class UserError(PostTrainError):
    """Something given can be put right by who gave it; the page shows the sentence as it is."""

    kind = "user"
    code = "E-USER"
    codes = {"E-USER": "what was asked cannot be done as asked"}


class ConfigError(UserError):
    """A model, training or sampling setting outside its range, or settings that contradict each other."""

    code = "E-CONFIG"
    codes = {
        "E-CONFIG": "a setting is outside its range or contradicts another",
        "E-CONFIG-PLAN": "the model and batch do not fit the memory that can be had",
    }


class ShapeError(UserError):
    """An array's shape or dtype does not match an op's record."""

    code = "E-SHAPE"
    codes = {
        "E-SHAPE": "an array's dimensions do not match the op's letters",
        "E-SHAPE-DTYPE": "an array's dtype is not the one the op takes",
    }


class DataError(UserError):
    """A text, token, prompt or pair that cannot be trained on or continued."""

    code = "E-DATA"
    codes = {
        "E-DATA": "the data cannot be used as given",
        "E-DATA-EMPTY": "the text is empty",
        "E-DATA-SHORT": "the text is shorter than the model needs",
        "E-DATA-HUGE": "the text is larger than can be held",
        "E-DATA-ENCODING": "the file is binary or not UTF-8",
        "E-DATA-TOKEN": "a token lies outside the vocabulary",
    }


class FormatError(UserError):
    """A file does not follow its format; nothing of it was used."""

    code = "E-FORMAT"
    codes = {
        "E-FORMAT": "the file does not follow its format",
        "E-FORMAT-SHORT": "a safetensors file is shorter than its 8-byte header length",
        "E-FORMAT-LENGTH": "a safetensors header is empty, larger than the file, or above 100 MB",
        "E-FORMAT-HEADER": "a safetensors header is not one JSON object in UTF-8",
        "E-FORMAT-CROWDED": "a safetensors header holds more brackets or commas than a checkpoint can need",
        "E-FORMAT-DUPLICATE": "a safetensors header names the same thing twice",
        "E-FORMAT-ENTRY": "a tensor's entry is not exactly dtype, shape and data_offsets",
        "E-FORMAT-DTYPE": "a tensor's dtype is not one this reader knows",
        "E-FORMAT-SHAPE": "a tensor's shape is not a list of non-negative integers of possible size",
        "E-FORMAT-OFFSETS": "a tensor's data_offsets are not two integers in order inside the file",
        "E-FORMAT-SIZE": "a tensor's shape and dtype need another number of bytes than its data_offsets give",
        "E-FORMAT-OVERLAP": "two tensors share bytes",
        "E-FORMAT-HOLE": "bytes between two tensors belong to none",
        "E-FORMAT-TRAILING": "bytes after the last tensor belong to none",
        "E-FORMAT-TRUNCATED": "the file ends before its last tensor does",
        "E-FORMAT-METADATA": "metadata is not text to text, or a field of a run has another type than it must",
        "E-FORMAT-FOREIGN": "a sound safetensors file that is not a saved run",
        "E-FORMAT-TENSOR": "a run's tensors do not belong together, or no tensor of that name is in the file",
        "E-FORMAT-MODEL": "a Hugging Face model's files are not sound, or are of a model that this program does not have",
        "E-FORMAT-TOKENIZER": "a tokenizer.json is not sound, or asks for what this tokenizer does not do",
    }


class DeviceError(PostTrainError):
    """The engine that does the arithmetic; no number is reported after one of these."""

    kind = "device"
    code = "E-DEVICE"
    codes = {"E-DEVICE": "the engine reported an error and the run stopped"}


class DeviceUnavailableError(DeviceError):
    """The device asked for is not on this machine, or its engine was not built."""

    code = "E-DEVICE-UNAVAILABLE"
    codes = {"E-DEVICE-UNAVAILABLE": "the device asked for cannot be had here"}


class DeviceLostError(DeviceError):
    """The device went away in mid-run (a GPU reset, a worker that died)."""

    code = "E-DEVICE-LOST"
    codes = {"E-DEVICE-LOST": "the device went away while it was used"}


class DeviceOutOfMemoryError(DeviceError):
    """The engine could not get the memory that the plan needs."""

    code = "E-DEVICE-MEMORY"
    codes = {"E-DEVICE-MEMORY": "the device has not the memory that the plan needs"}


class DeviceLimitError(DeviceError):
    """A size is above what the device allows for one buffer, binding or dispatch."""

    code = "E-DEVICE-LIMIT"
    codes = {"E-DEVICE-LIMIT": "a size is above a limit of the device"}


class NumericsError(PostTrainError):
    """The arithmetic gave something that must not be trusted."""

    kind = "numerics"
    code = "E-NUMERICS"
    codes = {"E-NUMERICS": "a number that must not be trusted"}


class NonFiniteError(NumericsError):
    """A loss or norm is NaN or infinite; the last good weights are kept."""

    code = "E-NUMERICS-NONFINITE"
    codes = {"E-NUMERICS-NONFINITE": "a loss or a norm is NaN or infinite"}


class SelfTestError(NumericsError):
    """An engine's start-up step differs from the reference; it may not be chosen."""

    code = "E-NUMERICS-SELFTEST"
    codes = {"E-NUMERICS-SELFTEST": "an engine's start-up test differs from the reference"}


class StoreError(PostTrainError):
    """Saved runs; what was saved before is unharmed unless the sentence says otherwise."""

    kind = "store"
    code = "E-STORE"
    codes = {
        "E-STORE": "the place where runs are kept reported an error",
        "E-STORE-UNAVAILABLE": "this browser gives the page no place to keep runs",
        "E-STORE-CLOSED": "a run was used after it was closed, or a save has since replaced what was being read",
        "E-STORE-GONE": "the saves of a run in use were removed from outside; it was saved anew",
    }


class StoreCorruptError(StoreError):
    """No slot of the run passes its checksum."""

    code = "E-STORE-CORRUPT"
    codes = {"E-STORE-CORRUPT": "no save of the run passes its checksum"}


class StoreVersionError(StoreError):
    """Written by a newer version of this package."""

    code = "E-STORE-VERSION"
    codes = {"E-STORE-VERSION": "the run was saved by a newer version"}


class StoreQuotaError(StoreError):
    """No room left; the save before this one is unharmed."""

    code = "E-STORE-QUOTA"
    codes = {"E-STORE-QUOTA": "no room is left for the save; the one before it is unharmed"}


class StoreMissingError(StoreError):
    """No run of that id, or a run into which nothing was saved yet."""

    code = "E-STORE-MISSING"
    codes = {"E-STORE-MISSING": "there is no such run, or nothing was saved in it yet"}


class StoreBusyError(StoreError):
    """Another tab or process has the run open."""

    code = "E-STORE-BUSY"
    codes = {"E-STORE-BUSY": "the run is open in another tab, in another process, or in this one"}


def tree(root: type[PostTrainError] = PostTrainError) -> list[tuple[int, type[PostTrainError]]]:
    """(depth, class) of every error in this file, parents first, in the order of this file."""
    found = [(0, root)]
    for child in root.__subclasses__():
        if child.__module__ == root.__module__:
            found += [(depth + 1, cls) for depth, cls in tree(child)]
    return found


def markdown() -> str:
    """docs/errors.md, whole."""
    lines = [
        "# Errors",
        "",
        "Printed by `python -m posttrainllm.errors`; a test compares. Every message is one sentence:",
        "the place or op; the rule; what came, by name; what to do. Over the wire it is `{code, message, kind}`.",
        "",
    ]
    lines += [f"{'  ' * depth}- `{cls.__name__}`: {cls.__doc__}" for depth, cls in tree()]
    lines += ["", "| code | raised as | kind | when |", "|---|---|---|---|"]
    lines += [
        f"| `{code}` | `{cls.__name__}` | {cls.kind} | {when} |"
        for _, cls in tree()
        for code, when in cls.codes.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    # -m runs this file under the name __main__; the tree to print is the one that the package imports.
    from posttrainllm import errors

    print(errors.markdown(), end="")
