"""A sparse autoencoder: an activation as a sum of few directions out of many, each of which may mean something.

f = act((x - bias)·encoder + encoder_bias),  x' = f·decoder + bias;  act is max(0, ·), of a "topk" one kept for the k largest of a
row only (arXiv 2309.08600, 2406.04093). A feature's direction is its row of decoder [F,C], of length 1 after training here.
Files are SAELens' (architectures "standard" and "topk"): cfg.json and sae_weights.safetensors in a folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ..errors import ConfigError, FormatError, NonFiniteError, ShapeError, StoreError
from ..ops.lazy import np
from ..store.safetensors import SafeTensors, encode
from .origin import path_of, sizes_read
from .picture import bars

KINDS = ("topk", "l1")
CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
_THEIRS = {"topk": "topk", "l1": "standard"}
PICTURED, BINS = 256, (-1.0, 0.2, 0.4, 0.6, 0.8, 1.01)
LAYOUT = "6.54.12"
"""SAELens' version whose layout this is; without one it takes a file for an old one's and drops the metadata."""


def sparse(pre, kind: str, k: int):
    """Activations [R,F] of what stands before them: not below 0; of "topk" the k largest of a row, of equal ones those of the lowest numbers."""
    acts = np.maximum(pre, 0)
    if kind == "topk" and k < pre.shape[1]:
        least = np.partition(acts, pre.shape[1] - k, axis=1)[:, pre.shape[1] - k, None]
        acts[acts < least] = 0
        tied = np.flatnonzero(np.count_nonzero(acts, axis=1) > k)  # seldom, but for features that have become the same
        for row in tied:
            acts[row, np.argsort(-acts[row], kind="stable")[k:]] = 0
    return acts


@dataclass
class SparseAutoencoder:
    """encoder [C,F], encoder_bias [F], decoder [F,C], bias [C], all float32; k counts for "topk" only.

    address is where in the model its inputs come from ("" where none was named), sizes those of the model it was trained on (by the
    names of origin.SIZES; {} where nothing says): a model of others is refused. Raises ConfigError, ShapeError, NonFiniteError.
    """

    encoder: object = field(repr=False)
    encoder_bias: object = field(repr=False)
    decoder: object = field(repr=False)
    bias: object = field(repr=False)
    kind: str = "topk"
    k: int = 32
    address: str = ""
    sizes: dict = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError("sae", f"kind is one of {', '.join(KINDS)}", f"{self.kind!r} came", "choose one")
        if getattr(self.encoder, "ndim", 0) != 2:
            raise ShapeError("sae", "encoder is an array [C,F]", f"{np.shape(self.encoder)} came", "see SparseAutoencoder")
        channels, features = self.encoder.shape
        expected = {"encoder_bias": (features,), "decoder": (features, channels), "bias": (channels,)}
        for name, shape in expected.items():
            if np.shape(getattr(self, name)) != shape:
                raise ShapeError(f"sae: {name} is {list(shape)} beside an encoder of {[channels, features]}; {list(np.shape(getattr(self, name)))} came.")

        if self.kind == "topk" and not (type(self.k) is int and 1 <= self.k <= features):
            raise ConfigError("sae", f"k is a whole number from 1 to {features}, the features there are", f"{self.k!r:.60} came", "change it")
        broken = [name for name in ("encoder", *expected) if not np.isfinite(getattr(self, name)).all()]
        if broken:
            raise NonFiniteError("sae", "weights are numbers", f"{broken[0]} holds NaN or infinity", "train it again, at a lower rate")

    @property
    def features(self) -> int:
        """F, how many directions there are."""
        return self.encoder.shape[1]

    @property
    def channels(self) -> int:
        """C, the width of what it reads."""
        return self.encoder.shape[0]

    def __str__(self) -> str:
        """How alike features are: of each of at most PICTURED, evenly chosen, the cosine with the one nearest to it; near 1 it is one twice."""
        kept = f"the {self.k} largest of a row" if self.kind == "topk" else "any above 0"
        lines = [f"sparse autoencoder at {self.address or 'no address'}: {self.features:,} features of {self.channels} numbers, {kept}"]
        if self.features > 1:
            unit = self.decoder / np.maximum(np.sqrt((self.decoder**2).sum(1, keepdims=True)), 1e-12)
            seen = np.arange(0, self.features, -(-self.features // PICTURED))
            cosines = unit[seen] @ unit.T
            cosines[np.arange(len(seen)), seen] = -1
            counts = np.histogram(cosines.max(1), BINS)[0]
            names = [f"{low:.1f} to {high:.1f}" for low, high in zip(BINS, BINS[1:])]
            notes = [f"{int(each)} features, nearest by this cosine" if not at else str(int(each)) for at, each in enumerate(counts)]
            lines += bars(names, counts, notes)
        return "\n".join(lines)

    def encode(self, x):
        """Feature activations [R,F] of x [R,C], or of any [..., C]."""
        rows = np.asarray(x, np.float32).reshape(-1, self.channels)
        acts = sparse((rows - self.bias) @ self.encoder + self.encoder_bias, self.kind, self.k)
        return acts.reshape(*np.shape(x)[:-1], self.features)

    def decode(self, acts):
        """x' [..., C] of feature activations [..., F]."""
        return acts @ self.decoder + self.bias

    def __call__(self, x):
        """x' of x: what few features can say of it. A replacement for `study.run`."""
        return self.decode(self.encode(x))

    def to_files(self, **metadata) -> dict[str, bytes]:
        """SAELens' two files by name. `metadata` goes into cfg.json's, as model_name and hook_name do there."""
        arrays = {"W_enc": self.encoder, "b_enc": self.encoder_bias, "W_dec": self.decoder, "b_dec": self.bias}
        tensors = [(name, "F32", each.shape, np.ascontiguousarray(each, "<f4").tobytes()) for name, each in arrays.items()]
        settings = {
            "d_in": self.channels, "d_sae": self.features, "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": True,
            "normalize_activations": "none", "reshape_activations": "none", "architecture": _THEIRS[self.kind],
            "metadata": {"sae_lens_version": LAYOUT, "hook_name": their_name(self.address), "posttrainllm_address": self.address}
            | ({"posttrainllm_sizes": self.sizes} if self.sizes else {}) | metadata,
        }  # fmt: skip
        if self.kind == "topk":
            settings |= {"k": self.k, "rescale_acts_by_decoder_norm": False}
        return {CONFIG: json.dumps(settings, indent=2).encode() + b"\n", WEIGHTS: b"".join(map(bytes, encode(tensors, {})))}

    def save(self, folder, **metadata) -> int:
        """Write the two files into a folder (made where there is none); returns their bytes. Raises ConfigError, StoreError."""
        folder, files = path_of("sae", folder), self.to_files(**metadata)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (folder / name).write_bytes(data)
        except OSError as error:
            raise StoreError(f"writing {folder}", "a folder can be written there", error.strerror or str(error), "choose another place") from error
        return sum(map(len, files.values()))

    @classmethod
    def from_files(cls, settings: bytes, weights) -> SparseAutoencoder:
        """From the contents of the two files. Raises FormatError for what this cannot hold."""
        try:
            config = json.loads(bytes(settings))
            kind = {theirs: ours for ours, theirs in _THEIRS.items()}[config["architecture"]]
            address, sizes = (config.get("metadata", {}).get(f"posttrainllm_{name}", none) for name, none in (("address", ""), ("sizes", None)))
            k = config.get("k", 0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError("sae", f"{CONFIG} says architecture standard or topk", str(error)[:80], "export it from SAELens again") from error
        off = [f"{name} {config[name]!r}" for name, plain in _PLAIN.items() if config.get(name, plain) != plain]
        if off:
            raise FormatError("sae", "activations are neither scaled nor reshaped, and b_dec is taken off the input", ", ".join(off), "fold it before")
        if not isinstance(address, str):
            raise FormatError("sae", f"{CONFIG}'s posttrainllm_address is text", f"{address!r:.60} came", "correct or leave it out")
        file = SafeTensors(weights, WEIGHTS)
        arrays = []
        for name in ("W_enc", "b_enc", "W_dec", "b_dec"):
            tensor = file[name]
            if tensor.dtype != "F32":
                raise FormatError("sae", "its weights are F32", f"{name} is {tensor.dtype}", "convert it before")
            arrays.append(np.frombuffer(tensor.view(), "<f4").reshape(tensor.shape))
        try:
            return cls(*arrays, kind=kind, k=k, address=address, sizes=sizes_read("sae", sizes))
        except (ConfigError, ShapeError) as error:
            raise FormatError("sae", f"{CONFIG} and {WEIGHTS} belong together", str(error), "export it from SAELens again") from error

    @classmethod
    def load(cls, folder) -> SparseAutoencoder:
        """From a folder. Raises ConfigError, FormatError."""
        folder = path_of("sae", folder)
        missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
        if missing:
            raise FormatError("sae", f"a folder with {CONFIG} and {WEIGHTS}", f"{', '.join(missing)} is not there", "choose another")
        return cls.from_files((folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes())


_PLAIN = {"normalize_activations": "none", "reshape_activations": "none", "apply_b_dec_to_input": True, "rescale_acts_by_decoder_norm": False}


def their_name(address: str) -> str:
    """TransformerLens' name of an address of the residual stream, attention's or the MLP's output; the address itself elsewhere."""
    head, _, rest = address.rpartition(".")
    block, _, part = address.partition(".attn.") if ".attn." in address else address.partition(".mlp.")
    if rest.startswith("resid_"):
        return f"{head}.hook_{rest}"
    if part == "out":
        return f"{block}.hook_{'attn' if '.attn.' in address else 'mlp'}_out"
    if part in ("pre", "post"):
        return f"{block}.mlp.hook_{part}"
    return address
