"""The README's fenced blocks run as they stand, in order, in one folder that holds text.txt; only the sizes are smaller here."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.ops.normal import GOLDEN, mix

from .calling import call

pytestmark = pytest.mark.native_only(reason="reads the clone, and runs on the cpu engine")

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
SMALLER = ((r"--preset \w+", "--preset tiny --batch 4"), (r"--steps \d+", "--steps 3"), (r'create\("\w+"', 'create("tiny"'), (r"steps=\d+", "steps=3"),
           (r"--tokens \d+", "--tokens 5"), (r"tokens=\d+", "tokens=5"))  # fmt: skip
TORCH = importlib.util.find_spec("torch") is not None
LETTERS = "etaoinshrdlucmfw"


def word(number):
    """A made-up word, the same everywhere."""
    draw = mix(GOLDEN * (number + 1))
    return "".join(LETTERS[draw >> 5 * at & 15] for at in range(2 + draw % 5))


def text():
    """25,000 bytes of lines of words that come again and again, in an order that does not."""
    words = [word(mix(GOLDEN * number + 3) % 400) for number in range(5000)]
    return "\n".join(" ".join(words[at : at + 9]) for at in range(0, len(words), 9))


def run(arguments):
    """torchrun, on CPUs."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments]
    subprocess.run(command, check=True, timeout=120, env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})


def test_the_blocks_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(text())
    names = {}
    assert {kind for kind, _ in BLOCKS} == {"sh", "python"}
    for kind, block in BLOCKS:
        for pattern, instead in SMALLER:
            block = re.sub(pattern, instead, block)
        if kind == "python":
            exec(compile(block, "README.md", "exec"), names)  # noqa: S102
            continue
        for line in block.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line, comments=True) or [""]
            assert program in ("posttrainllm", "torchrun", ""), line
            if ("torch" in line and not TORCH) or not program:
                continue
            if program == "torchrun":
                run(arguments)
            else:
                call(*arguments)
    assert names["check"]["the run"].verdict.kind == "no sign", "three steps teach nothing by heart"
