"""The GPU bench's judgement of its figures, and the modules it sends to Dawn."""

import pytest

gpu_report = pytest.importorskip("bench.gpu_report", reason="the bench is not part of this checkout")
from posttrainllm.backends.gpu.tiles import TENSOR_SMALL, as_choice

from bench import gpu_tensor

pytestmark = pytest.mark.native_only(reason="the bench runs natively")
STEP = {
    "precision": "f32",
    "host_share": 0.04,
    "dispatches": 90,
    "tflops": 43.0,
    "ms": 2.0,
    "ratio": 2.75,
    "memory": {"total_bytes": 3e6},
}


def test_targets_are_met_or_missed_by_the_figure():
    refused = {
        "label": 0,
        "layout": "NT",
        "precision": "f16",
        "tile": as_choice(TENSOR_SMALL, 1),
        "shape": [64] * 3,
        "error": "no",
    }
    rows = [{"label": 0, "layout": "NN", "precision": "f16", "tile": as_choice(TENSOR_SMALL, 1), "shape": [64] * 3, "right": right, "tflops": rate}
            for right, rate in ((True, 130.0), (False, 400.0))]  # fmt: skip
    rows[1]["off"] = 7.0
    parts = {
        "steps": [
            STEP | {"preset": "medium"},
            STEP | {"preset": "gpt2-bytes", "ms": 60.0, "ratio": 0.9},
            {"preset": "huge", "error": "x"},
        ],
        "page": [STEP | {"preset": "medium", "step_ms": 2.0, "host_ms": 0.96, "js_ms": 0.9, "host_share": 0.48}],
        "steps-f16": [STEP | {"preset": "gpt2-bytes", "ms": 20.0, "precision": "f16"}],
        "matmul": [
            {"layout": "NN", "tflops": 41.0},
            {"layout": "NN", "tflops": 43.0},
            {"layout": "NT", "error": "refused"},
        ],
        "tensor": {"rows": [*rows, refused]},
    }
    found = {row["name"]: (row["value"], row["met"]) for row in gpu_report.targets(parts)}
    assert found["medium: PyTorch eager f32's time by ours"] == (2.75, True)
    assert found["gpt2-bytes: PyTorch eager f32's time by ours"] == (0.9, False)
    assert found["matmul 4096³ f32 NN, TFLOP/s"] == (43.0, True)
    assert found["matmul 4096³ by matrix units NN, TFLOP/s"] == (130.0, True)  # what gave wrong numbers does not count
    assert found["gpt2 shape natively: f32's time by f16's"] == (3.0, True)
    assert found["medium natively: host's share of a step"] == (0.04, True)
    assert found["medium in a tab's way: Python's share of a step"] == (0.03, True), "JavaScript's is not Python's"
    assert len(found) == 7
    table = gpu_report.table({"adapter": "A", "features": ["f"], "parts": parts, "targets": gpu_report.targets(parts)})
    assert "| medium | f32 | 2.0 | 2.75 | 43.0 | 90 | 0.04 | 3 |" in table and "| **missed** |" in table
    assert "| medium (tab) | f32 | 2.0 | 2.75 | 43.0 | 90 | Python 0.030, JavaScript 0.450 | 3 |" in table
    lines = table.splitlines()[-3:]
    assert lines == ["NN 2x2 2x2 k32: 130 right", "NN 2x2 2x2 k32: 400 off 7", "NT 2x2 2x2 k32: - no"]


def test_modules_say_what_is_multiplied():
    found = gpu_tensor.modules(256)
    kinds = {(m["label"]["tile"][0], m["label"]["precision"], m["label"]["layout"]) for m in found}
    layouts = ("NN", "NT", "TN")
    assert kinds == {
        (k, p, layout) for layout in layouts for k, p in (("tensor", "f16"), ("plain", "f16"), ("plain", "f32"))
    }
    for module in found:
        product, sizes = (
            module["product"],
            {b["index"]: b["bytes"] // (2 if b["half"] else 4) for b in module["bindings"]},
        )
        assert sizes[product["out"]] == product["rows"] * product["columns"]
        assert next(b["index"] for b in module["bindings"] if b["writes"]) == product["out"]
