"""The error tree: codes, sentences, events, and the list in docs/errors.md."""

import pickle
import re
from pathlib import Path

import pytest

from posttrainllm import errors

CLASSES = [cls for _, cls in errors.tree()]
PACKAGE = Path(errors.__file__).parent
ROOT = PACKAGE.parents[1]


def test_every_code_has_one_class_and_every_class_declares_its_own():
    seen = [code for cls in CLASSES for code in cls.__dict__["codes"]]
    assert len(seen) == len(set(seen))
    for cls in CLASSES:
        assert cls.__dict__["code"] in cls.__dict__["codes"]
        for code in cls.codes:
            assert re.fullmatch(r"E(-[A-Z]+)+", code)
            assert code.startswith(cls.code)
        assert cls.__doc__ and "\n" not in cls.__doc__


def test_codes_named_in_the_package_are_declared():
    declared = {code for cls in CLASSES for code in cls.codes}
    for path in PACKAGE.rglob("*.py"):
        for code in re.findall(r'"(E-[A-Z-]+)"', path.read_text("utf-8")):
            assert code in declared, f"{path.name} raises {code}, which errors.py does not list"


@pytest.mark.parametrize("cls", CLASSES)
def test_sentence_event_and_pickle(cls):
    code = list(cls.codes)[-1]
    error = cls("linear", "x has I columns", "x is (4, 3)", "pass 5 columns", code=code)
    assert str(error) == error.message == "linear: x has I columns; x is (4, 3); pass 5 columns."
    assert error.to_event() == {"code": code, "message": error.message, "kind": cls.kind}
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and again.to_event() == error.to_event()


def test_one_finished_sentence_is_kept_and_the_class_code_holds():
    error = errors.ConfigError("heads must divide d; 5 heads, d 48; choose 4 or 6 heads.")
    assert str(error) == "heads must divide d; 5 heads, d 48; choose 4 or 6 heads."
    assert error.code == "E-CONFIG" and error.kind == "user"


def test_the_four_branches():
    assert {cls.kind for cls in CLASSES[1:]} == {"user", "device", "numerics", "store"}
    for cls in CLASSES:
        assert issubclass(cls, errors.PostTrainError)


def test_docs_list_is_the_tree():
    page = ROOT / "docs" / "errors.md"
    if not page.exists():
        pytest.skip("docs/ is not beside the package (installed, or under Pyodide): nothing to compare")
    assert page.read_text("utf-8") == errors.markdown(), "run: python -m posttrainllm.errors > docs/errors.md"
