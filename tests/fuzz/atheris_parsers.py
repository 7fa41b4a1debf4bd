"""atheris on one parser of parsers.py: python -m tests.fuzz.atheris_parsers NAME [libFuzzer's options] [corpus folders]."""

import sys

import atheris

with atheris.instrument_imports(include=["posttrainllm", "json", "zipfile"]):
    from tests.fuzz import parsers


def main() -> None:
    name = sys.argv.pop(1)
    parsers.PARSERS[name].read(parsers.PARSERS[name].seeds()[0])  # caches fill before anything is measured
    atheris.Setup(sys.argv, lambda data: parsers.survives(name, data, measured=False))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
