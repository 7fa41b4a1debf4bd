"""Fixtures of every test: the engines; and which tests need CPython."""

import sys

import pytest

from tests.helpers.machines import available_machines, every_machine

IN_BROWSER = sys.platform == "emscripten"


def pytest_configure(config):
    config.addinivalue_line("markers", "native_only(reason): needs what Pyodide has not (processes, threads, files of the clone)")


def pytest_collection_modifyitems(items):
    for item in items:
        marker = item.get_closest_marker("native_only")
        if marker is not None and IN_BROWSER:
            reason = marker.kwargs.get("reason") or "native only"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", params=available_machines(), ids=lambda opener: opener.name)
def machine(request):
    """Each engine under test, opened once; tests allocate and fill what they need."""
    opened = request.param.open()
    yield opened
    opened.close()


@pytest.fixture(scope="session", params=every_machine(), ids=lambda opener: opener.name)
def any_machine(request):
    """Each engine and the float64 judge: for laws that hold without a judge."""
    opened = request.param.open()
    yield opened
    opened.close()
