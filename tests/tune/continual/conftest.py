"""The scripted users' corrections, made once in a session."""

import pytest

from tests.helpers.machines import open_once

from .making import base, poisonous, scripted


@pytest.fixture(scope="session", name="records")
def scripted_records():
    """Forty corrections into a style, and forty into random text, as JSONL: what the base offers is asked once."""
    model = base(open_once("cpu-1"))
    return {"style": scripted(model).to_jsonl(), "poison": poisonous(model).to_jsonl()}
