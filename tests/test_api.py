"""The public API: small, lazy, and the lines that the design promises."""

import subprocess
import sys
import types

import pytest

import posttrainllm as pt

TEXT = "To be, or not to be, that is the question. " * 60
SMALL = {"layers": 1, "channels": 16, "heads": 2, "context": 16, "batch": 4}


def test_every_public_name_is_there_and_dir_tells_them():
    for name in pt.__all__:
        assert getattr(pt, name) is not None
    assert set(pt.__all__) <= set(dir(pt))
    assert set(pt._HOMES) | set(pt._ERRORS) | {"errors", "study", "train", "__version__"} == set(pt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pt.nothing  # noqa: B018


def test_train_is_a_package_and_can_be_called():
    import posttrainllm.train.trainer

    assert isinstance(pt.train, types.ModuleType) and callable(pt.train)
    assert posttrainllm.train is pt.train and pt.train.trainer.Trainer is pt.Trainer


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.native_only(reason="starts processes")
def test_importing_costs_nothing():
    done = python(
        "import sys, time; before = set(sys.modules); began = time.perf_counter(); import posttrainllm; "
        "print(time.perf_counter() - began, *sorted(set(sys.modules) - before))"
    )
    seconds, *modules = done.stdout.split()
    assert float(seconds) < 0.2, done.stderr
    assert not [name for name in modules if name.startswith(("posttrainllm.", "numpy", "typer", "rich"))]


@pytest.mark.native_only(reason="starts processes")
@pytest.mark.parametrize(
    "home", ["session", "train.state", "train.trainer", "decode.generate", "store.runs", "compile.explain"]
)
def test_what_the_page_loads_needs_no_numpy(home):
    done = python(
        f"import sys, posttrainllm.{home}; print([n for n in ('numpy', 'typer', 'rich', 'click') if n in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_lines_of_the_design(tmp_path):
    """On the reference, which is everywhere; the default device is the same lines."""
    corpus = pt.Corpus.from_text(TEXT)
    model = pt.GPT.create(pt.GPTConfig(**SMALL), seed=42, device="reference")
    kinds = [type(report) for report in pt.train(model, corpus, steps=3, evaluation_tokens=64)]
    assert kinds == [pt.EvalReport, *[pt.StepReport] * 3, pt.EvalReport, pt.StoppedReport]
    text = model.generate("To be", tokens=12, temperature=0.8, top_k=40)
    path = tmp_path / "shakespeare.safetensors"
    assert model.save(path) == path.stat().st_size
    again = pt.GPT.load(path, device="reference")
    assert again.config == model.config and again.weights_sha256() == model.weights_sha256()
    assert again.generate("To be", tokens=12, temperature=0.8, top_k=40) == text
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no part is left behind"


def test_a_preset_by_name_and_device_by_name():
    model = pt.GPT.create("tiny", device="reference")
    assert model.config == pt.GPTConfig.preset("tiny") and model.config.parameter_count() == 70_464
    for wrong, match in (({"model": "vast"}, "tiny, small, medium"), ({"device": "abacus"}, "auto, cpu, webgpu, reference")):
        with pytest.raises(pt.ConfigError, match=match):
            pt.GPT.create(**({"model": "tiny"} | wrong))


def test_loading_what_is_no_model_is_a_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("hello, I am no model at all")
    (tmp_path / "empty").write_bytes(b"")
    for name, kind in (
        ("notes.txt", pt.FormatError),
        ("empty", pt.FormatError),
        ("none", pt.DataError),
        (".", pt.StoreError),
    ):
        with pytest.raises(kind):
            pt.GPT.load(tmp_path / name, device="reference")
    with pytest.raises(pt.StoreError, match="another place"):
        pt.GPT.create(pt.GPTConfig(**SMALL), device="reference").save(tmp_path / "no" / "such" / "folder.safetensors")


def test_a_model_that_cannot_fit_is_refused_with_what_would(monkeypatch):
    monkeypatch.setattr("posttrainllm.model.live.available_bytes", lambda: 24_000_000)
    with pytest.raises(pt.ConfigError, match=r"the batch in 16 parts \(micro_batches=16\) fits") as caught:
        pt.GPT.create(pt.GPTConfig(**SMALL | {"context": 64, "channels": 64, "batch": 64}), device="reference")
    assert caught.value.code == "E-CONFIG-PLAN" and "24,000,000" in str(caught.value)
    with pytest.raises(pt.ConfigError, match="no batch fits"):
        pt.GPT.create("mega", device="reference")


@pytest.mark.parametrize("given", [{"memory_bytes": "3 GB"}, {"memory_bytes": -3}, {"memory_bytes": float("nan")}, {"saving": {"recompute": 1}}])
def test_what_memory_is_asked_for_is_checked(given):
    with pytest.raises(pt.ConfigError, match="whole number of bytes from 1 on|it is a Saving"):
        pt.GPT.create(pt.GPTConfig(**SMALL), device="reference", **given)


@pytest.mark.native_only(reason="reads the machine's memory")
def test_the_machines_memory_is_known():
    from posttrainllm.model.memory import available_bytes

    assert 64 << 20 < available_bytes() < 1 << 50


@pytest.mark.native_only(reason="the README's lines are run on the cpu engine")
def test_the_module_docstring_runs():
    lines = [line[4:] for line in pt.__doc__.splitlines() if line.startswith("    ")]
    code = (
        "\n".join(lines)
        .replace('"medium"', '"tiny"')
        .replace("steps=1000", "steps=2")
        .replace("tokens=200", "tokens=9")
    )
    code = code.replace('model.save("shakespeare.safetensors")', "")
    exec(compile(code, "the docstring", "exec"), {"text": TEXT})  # noqa: S102
