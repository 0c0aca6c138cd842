import pytest

from ninfer.kernels.compiled.opening import open_compiler


@pytest.fixture(scope="session")
def compiler(pytestconfig):
    """The compiler of decode steps. What it compiles is kept from run to run."""
    pytest.importorskip("numba")
    found = open_compiler(pytestconfig.cache.mkdir("ninfer-code"))
    assert found is not None
    return found
