"""Kernels that sum over neighbouring threads, with subgroups and without: a device may have them or not."""

from dataclasses import replace

import pytest
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import training_step

from tests.helpers.cases import ALL_CASES
from tests.helpers.kernels import check_parity

NAMES = ("layernorm", "layernorm_backward", "cross_entropy", "grad_norm")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("subgroups", [True, False])
def test_every_case(open_gpu, name, subgroups):
    machine = open_gpu(DEFAULT)
    if subgroups and not machine.options.subgroups:
        pytest.skip("this adapter has no subgroups")
    machine.options = replace(machine.options, subgroups=subgroups)
    for case in ALL_CASES[name]:
        check_parity(machine, case)


def test_they_are_used_where_a_device_has_them_and_only_there():
    tape = training_step(GPTConfig(layers=1, channels=32, heads=2, context=8, vocabulary=16, batch=1)).tape
    for subgroups in (True, False):
        users = {
            d.kernel for d in lower(tape, Options(subgroups=subgroups)).dispatches if "subgroupShuffle" in d.source()
        }
        assert users == (set(NAMES) if subgroups else set())
