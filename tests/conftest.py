"""Fixtures of every test: the engines; and which tests need CPython."""

import sys

import pytest

from tests.helpers.machines import available_machines, close_all, every_machine, open_once

IN_BROWSER = sys.platform == "emscripten"


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "native_only(reason): needs what Pyodide has not (processes, threads, files of the clone)"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        marker = item.get_closest_marker("native_only")
        if marker is not None and IN_BROWSER:
            reason = marker.kwargs.get("reason") or "native only"
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish():
    close_all()


@pytest.fixture(scope="session", params=available_machines())
def machine(request):
    """Each engine under test."""
    return open_once(request.param)


@pytest.fixture(scope="session", params=every_machine())
def any_machine(request):
    """Each engine and the float64 judge: for laws that hold without a judge."""
    return open_once(request.param)
