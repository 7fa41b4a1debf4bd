"""Speculation on a GPU: a row's bits do not depend on how many rows are verified with it, so greedy text is that without a draft."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from posttrainllm.backends.gpu import tiles
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.options import Options
from posttrainllm.configs import load
from posttrainllm.decode.constrain import regex
from posttrainllm.decode.generate import write
from posttrainllm.decode.speculative import MOST_AHEAD
from posttrainllm.model.config import GPTConfig

from tests.helpers.constrained import BYTES
from tests.helpers.machines import open_once
from tests.helpers.trained import DRAFT, DRAFT_STEPS, trained
from tests.model.test_cache import CONFIGS, logits, made, tokens_of

ROWS = range(1, MOST_AHEAD + 2)


def untouched():
    """The module of tiles as it is outside of these tests, which take the smallest one for all (conftest.py)."""
    spec = importlib.util.spec_from_file_location(f"{tiles.__package__}.tiles_untouched", Path(tiles.__file__))
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look it up
        spec.loader.exec_module(module)
    return module


def all_options(module):
    """Full precision; half precision; matrix units, as a probe finds them right."""
    units = {module.units_key(layout): module.as_choice(module.TENSOR_SMALL, 1) for layout in ("NN", "NT")}
    half = Options(DEFAULT, "f16", ((16, 16, 16),))
    return Options.of(DEFAULT), half, replace(half, tiles=units)


@pytest.mark.parametrize("preset", load("presets"))
def test_every_number_of_rows_takes_one_tile(preset):
    """The same shader with the same constants sums in the same order, whatever else lies in the tile."""
    config, module = GPTConfig.preset(preset), untouched()
    c, f = config.channels, config.hidden
    products = [("NN", 3 * c, c), ("NN", c, c), ("NN", f, c), ("NN", c, f), ("NT", config.vocabulary, c)]
    for options in all_options(module):
        for layout, columns, depth in products:
            found = {str(module.matmul_tile(layout, rows, columns, depth, options)) for rows in ROWS}
            assert len(found) == 1, f"{layout} to {columns}: {found}"


def test_more_rows_take_other_tiles():
    """So that the test above can fail."""
    found = {str(untouched().matmul_tile("NN", rows, 1024, 256, Options.of(DEFAULT))) for rows in (1, 128, 2048)}
    assert len(found) > 1


@pytest.mark.parametrize("name", ["odd", "many heads"])
def test_rows_verified_together_are_those_computed_alone(gpu, name):
    model = made(gpu, CONFIGS[name])
    tokens = tokens_of(model.config)[:30]
    alone = [logits(model, tokens[: count + 1]).tobytes() for count in range(13, 30)]
    for last in (2, 3, 5, 9, 17):
        logits(model, tokens[: 30 - last])  # what stands before is computed row by row or in passes of its own
        together = logits(model, tokens, last)
        assert [row.tobytes() for row in together] == alone[-last:], f"{last} rows"


def test_greedy_text_is_that_without_a_draft(gpu):
    """Prompts within and beyond the context, with and without a grammar, several hops of the window."""
    model, draft = trained(gpu), trained(open_once("cpu"), DRAFT, DRAFT_STEPS)
    lines = regex(r"(?:[A-Z][a-z,' -]{4,30}[.;:!?]\n?)*", BYTES)
    for prompt, ahead, how in (("F", 4, {}), ("Of his bones are coral made", 8, {}), ("Full fathom five", 3, {"constraint": lines, "end": "longest"})):
        plain = [piece.text for piece in write(model, prompt, 90, temperature=0, **how)]
        model.forget_cache()
        pieces = list(write(model, prompt, 90, temperature=0, draft=draft, ahead=ahead, **how))
        assert [piece.text for piece in pieces] == plain
        assert 0.1 < pieces[-1].acceptance.rate < 1
