"""study: look inside a model, change what is there and see what happens. Each call returns arrays and prints as a small picture.

    from posttrainllm import study
    print(study.patterns(model, "ROMEO: Romeo"))
    study.run(model, text, taps=["blocks.2.resid_post"], replace={"blocks.0.attn.y": 0.0})

Every call has a twin that ends in _async, for a browser's GPU. Names are imported at first use; addresses.py lists all addresses.
"""

from importlib import import_module

_HOMES = {
    "Activations": "running",
    "Change": "running",
    "LensTrainer": "tuned_lens",
    "SparseAutoencoder": "sae",
    "TunedLens": "tuned_lens",
    "ablate": "effects",
    "changed": "steering",
    "contributions": "lens",
    "features": "sparse",
    "flow": "stops",
    "head_scores": "attention",
    "logit_lens": "lens",
    "next_token": "lens",
    "patch": "effects",
    "patterns": "attention",
    "places": "addresses",
    "recovered": "recovery",
    "release": "passes",
    "run": "running",
    "sae_trainer": "sparse",
    "sharpening": "sharpen",
    "steer": "steering",
}
_TWINS = (
    "ablate", "contributions", "features", "flow", "head_scores", "logit_lens", "next_token", "patch", "patterns", "recovered", "release", "run",
    "sae_trainer", "sharpening",
)  # fmt: skip
_HOMES |= {f"{name}_async": _HOMES[name] for name in _TWINS}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return found


def __dir__():
    return sorted(set(globals()) | set(__all__))
