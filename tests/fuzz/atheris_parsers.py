"""atheris on one parser of parsers.py: python -m tests.fuzz.atheris_parsers NAME [libFuzzer's options] [corpus folders]."""

import gc
import sys
import types

import atheris

from tests.fuzz import parsers

COUNTED = ("posttrainllm", "json", "zipfile", "csv", "lark.load_grammar")


def instrument() -> int:
    """Count the branches of all functions that are loaded; how many. (Atheris's hook on imports passes over an editable install.)"""
    found = [each for each in gc.get_objects() if isinstance(each, types.FunctionType) and str(each.__module__).startswith(COUNTED)]
    for each in found:
        atheris.instrument_func(each)
    return len(found)


def main() -> None:
    name = sys.argv.pop(1)
    for seed in parsers.PARSERS[name].seeds():
        parsers.survives(name, seed, measured=False)  # imports all that it uses, and fills caches
    print(f"{instrument():,} functions are counted", file=sys.stderr)
    atheris.Setup(sys.argv, lambda data: parsers.survives(name, data, measured=False))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
