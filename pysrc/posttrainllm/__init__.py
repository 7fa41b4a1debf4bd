"""posttrainllm: train, post-train and open up small GPTs, in a browser tab or natively, in Python.

    import posttrainllm as pt
    corpus = pt.Corpus.from_text(text)
    model = pt.GPT.create("medium", seed=42)
    for report in pt.train(model, corpus, steps=1000):
        print(report)
    print(model.generate("ROMEO:", tokens=200, temperature=0.8, top_k=40))
    model.save("shakespeare.safetensors")

Names are imported at first use, so that `import posttrainllm` costs nothing.
"""

__version__ = "0.1.0"

_HOMES = {
    "Adapter": "model.lora",
    "BPETokenizer": "data.bpe",
    "Corpus": "data.corpus",
    "GPT": "model.live",
    "GPTConfig": "model.config",
    "LoRAConfig": "model.lora",
    "lora": "model.adapted",
    "sft": "tune.sft",
    "dpo": "tune.dpo",
    "ForgettingReport": "tune.forgetting",
    "PreferenceEvalReport": "tune.dpo",
    "PreferenceStepReport": "tune.dpo",
    "text_loss": "tune.forgetting",
    "Live": "train.trainer",
    "Trainer": "train.trainer",
    "EvalReport": "train.reports",
    "Pairs": "data.pairs",
    "Preferences": "data.pairs",
    "SampleReport": "train.reports",
    "SavedReport": "train.reports",
    "Saving": "model.saving",
    "StepReport": "train.reports",
    "StoppedReport": "train.reports",
    "checkpoint_of": "train.state",
    "trainer_of": "train.state",
    "Template": "data.pairs",
    "memorise": "study.memorise",
    "memorise_async": "study.memorise",
    "write": "decode.generate",
    "compare_runs": "train.comparison",
    "Correction": "tune.continual.records",
    "Corrections": "tune.continual.records",
    "CuratedReport": "tune.continual.curate",
    "GateReport": "tune.continual.gate",
    "ImprovedReport": "tune.continual.improve",
    "curate": "tune.continual.curate",
    "improve": "tune.continual.improve",
    "improve_async": "tune.continual.improve",
}
_ERRORS = (
    "PostTrainError", "UserError", "ConfigError", "ShapeError", "DataError", "FormatError", "DeviceError", "NumericsError",
    "StoreError",
)  # fmt: skip

__all__ = [
    "GPT",
    "Adapter",
    "BPETokenizer",
    "ConfigError",
    "Corpus",
    "Correction",
    "Corrections",
    "CuratedReport",
    "DataError",
    "DeviceError",
    "EvalReport",
    "ForgettingReport",
    "FormatError",
    "GPTConfig",
    "GateReport",
    "ImprovedReport",
    "Live",
    "LoRAConfig",
    "NumericsError",
    "Pairs",
    "PostTrainError",
    "PreferenceEvalReport",
    "PreferenceStepReport",
    "Preferences",
    "SampleReport",
    "SavedReport",
    "Saving",
    "ShapeError",
    "StepReport",
    "StoppedReport",
    "StoreError",
    "Template",
    "Trainer",
    "UserError",
    "__version__",
    "checkpoint_of",
    "compare_runs",
    "curate",
    "dpo",
    "errors",
    "improve",
    "improve_async",
    "lora",
    "memorise",
    "memorise_async",
    "sft",
    "study",
    "text_loss",
    "train",
    "trainer_of",
    "write",
]  # fmt: skip


def __getattr__(name: str):
    from importlib import import_module

    if name in ("errors", "study", "train"):  # `train` is a package that can be called
        return import_module(f".{name}", __name__)
    home = "errors" if name in _ERRORS else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return found


def __dir__():
    return sorted(set(globals()) | set(__all__))
