"""Imports go one way, so that each layer can be read without the ones above it."""

import ast
from pathlib import Path

import posttrainllm
import pytest

pytestmark = pytest.mark.native_only(reason="reads the package's source")

ORDER = [{"errors", "dims", "configs", "waiting"}, {"ops"}, {"compile"}, {"backends"}, {"model", "data", "decode"}, {"store"}, {"train", "tune", "study"},
         {"session"}, {"cli"}]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
ROOT = Path(posttrainllm.__path__[-1])
# The language's own entry points, and modules that only print.
TOP = {"__init__", "cli", "cli_train", "cli_show", "cli_print", "torch_engine", "__main__"}


def layer(module: str) -> str:
    """The layer a dotted module below posttrainllm belongs to."""
    return "cli" if module.split(".")[0].startswith("cli") else module.split(".")[0]


def imported(file: Path):
    """Modules below posttrainllm that a file imports, outside of TYPE_CHECKING."""
    package = file.relative_to(ROOT).parent.parts
    for node in ast.parse(file.read_text("utf-8")).body:  # an import inside a function is a convenience that costs no layer
        if isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            if node.level:
                yield name or ".".join(alias.name for alias in node.names[:1])
            elif name.startswith("posttrainllm."):
                yield name.removeprefix("posttrainllm.")


def test_no_layer_imports_one_above_it():
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        if parts[0] in TOP:
            continue
        for name in imported(file):
            target = layer(name)
            if target in LEVEL and LEVEL[target] > LEVEL[layer(parts[0])]:
                wrong.append(f"{'/'.join(parts)} imports {name}")
    assert not wrong, wrong


def test_backends_import_nothing_from_each_other():
    hosts = {"native", "wasm", "webgpu", "webgpu_browser", "reference"}
    wrong = [
        f"{host} imports {name}"
        for host in hosts
        for name in imported(ROOT / "backends" / f"{host}.py")
        if name.startswith("backends.") and name.split(".")[1] in hosts - {host}
    ]
    assert not wrong, wrong
