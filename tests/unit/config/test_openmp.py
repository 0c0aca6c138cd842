"""Threads of the tensor library go to sleep soon, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from ninfer.config.openmp import wait_briefly


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_what_the_user_says_stays(given, spins):
    environment = dict(given)
    wait_briefly(environment)
    assert environment.get("GOMP_SPINCOUNT") == spins


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP comes with torch on Linux only")
def test_the_runtime_that_torch_loads_has_read_it():
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP", "OMP"))}
    environment["OMP_DISPLAY_ENV"] = "VERBOSE"
    program = "import sys; sys.argv[1:] = ['version']\nfrom ninfer.cli.main import main\n"
    program += "try: main()\nexcept SystemExit: import torch"
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if "GOMP" not in told.stderr:
        pytest.skip("this torch has another OpenMP runtime")
    assert "GOMP_SPINCOUNT = '1000'" in told.stderr
