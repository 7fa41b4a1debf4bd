"""The engine's first promise: one set of bits, whatever the instruction set, the threads, or the company a row keeps."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.ext.calls import calls
from tests.ext.tapes import KERNELS, Call

native = pytest.importorskip("posttrainllm._native", reason="the native module is not built")


def runs_here(isa: str) -> bool:
    try:
        native.Engine(1, isa)
    except ValueError:
        return False
    return True


BUILDS = [isa for isa in ("avx512", "avx2", "sse2", "neon") if runs_here(isa)]
ENGINES = [(isa, threads) for isa in BUILDS for threads in (1, 2, 3)]


def digest(call: Call, engine) -> str:
    return hashlib.sha256(call.run(engine).tobytes()).hexdigest()


def test_the_host_runs_a_build():
    assert native.isa() in BUILDS
    assert native.kernel_names() == list(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_every_build_and_thread_count_gives_the_same_bits(name):
    engines = [native.Engine(threads, isa) for isa, threads in ENGINES]
    for call in (c for c in calls() if c.name == name):
        results = call.results(engines[0])
        for operand, written, rule in KERNELS[name].operands:
            assert not written or rule == "W" or np.isfinite(results[operand]).all(), (name, call.sizes, operand)
        hashes = {pair: digest(call, engine) for pair, engine in zip(ENGINES, engines, strict=True)}
        assert len(set(hashes.values())) == 1, (name, call.sizes, hashes)


def test_a_changed_bit_changes_the_hash():
    """The test above can fail: one bit in one input is seen."""
    call = next(c for c in calls() if c.name == "linear" and c.sizes["R"] == 33)
    engine = native.Engine(1)
    before = digest(call, engine)
    call.image.view(np.uint32)[call.spans["x"].start] ^= 1
    assert digest(call, engine) != before


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("inputs, outputs", [(130, 40), (300, 97), (513, 520), (270, 790)])
def test_a_row_of_a_product_does_not_depend_on_other_rows(isa, inputs, outputs):
    random = np.random.default_rng(2)
    engine = native.Engine(2, isa)
    most = 97
    x, weight, bias = normal(random, most, inputs), normal(random, inputs, outputs), normal(random, outputs)
    dy, wte = normal(random, most, outputs), normal(random, outputs, inputs)

    def products(first, last):
        rows = last - first
        sizes = {"R": rows, "I": inputs, "O": outputs}
        y = Call.make("linear", sizes, [], {"x": x[first:last], "weight": weight, "bias": bias}).results(engine)["y"]
        values = {"dy": dy[first:last], "weight": weight}
        dx = Call.make("linear_backward_input", sizes, [], values).results(engine)["dx"]
        sizes = {"R": rows, "C": inputs, "V": outputs}
        logits = Call.make("unembed", sizes, [], {"x": x[first:last], "wte": wte}).results(engine)["logits"]
        return y.reshape(rows, -1), dx.reshape(rows, -1), logits.reshape(rows, -1)

    whole = products(0, most)
    for first, last in [(0, 1), (0, 2), (3, 9), (4, 15), (7, 23), (5, 45), (60, 96), (96, 97)]:
        for part, all_rows in zip(products(first, last), whole, strict=True):
            assert part.tobytes() == np.ascontiguousarray(all_rows[first:last]).tobytes(), (first, last)


@pytest.mark.parametrize("isa", BUILDS)
@pytest.mark.parametrize("width", [5, 32, 64])
def test_a_row_of_attention_does_not_depend_on_later_rows_or_other_entries(isa, width):
    random = np.random.default_rng(3)
    engine = native.Engine(2, isa)
    batch, time, heads = 3, 150, 2
    qkv = normal(random, batch, time, 3, heads, width)

    def attend(part):
        sizes = {"B": part.shape[0], "T": part.shape[1], "H": heads, "D": width}
        results = Call.make("attention", sizes, [], {"qkv": part}).results(engine)
        return results["y"].reshape(*part.shape[:2], -1), results["lse"].reshape(part.shape[0], heads, -1)

    y, lse = attend(qkv)
    for b, t in [(0, 1), (1, 2), (2, 19), (0, 63), (1, 64), (2, 65), (0, 129), (1, 150)]:
        y_part, lse_part = attend(qkv[b : b + 1, :t])
        assert y_part[0].tobytes() == y[b, :t].tobytes(), (b, t)
        assert lse_part[0].tobytes() == np.ascontiguousarray(lse[b, :, :t]).tobytes(), (b, t)


@pytest.mark.parametrize("isa", BUILDS)
def test_losses_do_not_depend_on_the_batch(isa):
    random = np.random.default_rng(4)
    engine = native.Engine(2, isa)
    rows, vocabulary = 83, 300
    logits = normal(random, rows, vocabulary)
    targets = random.integers(0, vocabulary, rows).astype(np.int32)
    values = {"logits": logits, "targets": targets}
    whole = Call.make("cross_entropy", {"R": rows, "V": vocabulary}, [], values).results(engine)
    for r in (0, 40, 82):
        values = {"logits": logits[r], "targets": targets[r : r + 1]}
        one = Call.make("cross_entropy", {"R": 1, "V": vocabulary}, [], values).results(engine)
        assert one["losses"].tobytes() == whole["losses"][r : r + 1].tobytes()
