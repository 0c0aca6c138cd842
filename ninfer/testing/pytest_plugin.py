"""What pytest loads wherever ninfer is installed: two options and a marker. Imports nothing, so it costs nothing."""

# The parameters are pytest.Parser and pytest.Config; naming the types would import pytest at every start.


def pytest_addoption(parser):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Add the options of conformance suites."""
    group = parser.getgroup("ninfer", "conformance suites of ninfer plugins")
    group.addoption(
        "--conformance-profile",
        choices=("quick", "full", "soak"),
        help="how hard conformance suites try; default: what the suite says, else quick",
    )
    group.addoption(
        "--conformance-seed",
        type=int,
        help="seed of random inputs; default: the same inputs in every run",
    )


def pytest_configure(config):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Declare the marker of conformance suites."""
    config.addinivalue_line("markers", "conformance: a conformance suite of a ninfer plugin")
