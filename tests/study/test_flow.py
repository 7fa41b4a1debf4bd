"""The forward pass on one screen: each stop shows the numbers that stand there."""

import json

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import DataError
from posttrainllm.study.stops import MADE_OF, NUMBERS
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import weights_of
from tests.study.golden import CONFIG, TOKENS, made_here


def test_every_stop_shows_what_stands_there(any_machine):
    model = made_here(any_machine)
    there, found = by_hand(weights_of(model), CONFIG, TOKENS), study.flow(model, TOKENS, position=4)
    stops = {stop.address: stop for stop in found.stops}
    assert len(stops) == CONFIG.layers * (len(MADE_OF) - 3) + 3 and list(stops)[0] == "embed" and list(stops)[-1] == "logits"
    for address, stop in stops.items():
        if address.endswith("pattern"):
            rows = there[address][:, 4, :5]
            assert stop.shape == [CONFIG.heads, 5] and np.allclose(stop.numbers, rows.max(1), atol=1e-5)
            assert stop.at == [found.labels[each] for each in rows.argmax(1)]
            continue
        own = there[address][4]
        assert stop.shape == list(own.shape) and np.isclose(stop.length, np.linalg.norm(own), rtol=1e-5), address
        expected = -np.sort(-own)[:NUMBERS] if address == "logits" else own.reshape(-1)[:NUMBERS]
        assert np.allclose(stop.numbers, expected, atol=2e-5), address
    assert len(str(found).splitlines()) == len(stops) + 2 and json.dumps(found.to_dict())


def test_what_does_not_fit_is_refused(any_machine):
    with pytest.raises(DataError, match="a position from 0 to 7"):
        study.flow(made_here(any_machine), TOKENS, position=8)
