import gc
import os
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from ninfer.api.errors import ConfigError
from ninfer.exec import host_memory, memory
from ninfer.exec.host_memory import PIN_CHUNK_BYTES, HostMemory, pin_ranges
from ninfer.exec.memory import available_host_bytes, plan_pages

CPU = torch.device("cpu")


def test_configured_capacity_is_rounded_up_to_pages() -> None:
    budget = plan_pages(1000, CPU, capacity_tokens=65)
    assert budget.num_pages == 2
    assert budget.num_tokens == 128
    assert "configured" in budget.reason


def test_a_capacity_that_does_not_fit_names_the_numbers() -> None:
    with pytest.raises(ConfigError, match="needs 128000000000000000 bytes"):
        plan_pages(10**9, CPU, capacity_tokens=64 * 128_000_000)


@pytest.mark.parametrize("capacity_tokens", [0, -5])
def test_a_capacity_of_nothing_is_refused(capacity_tokens: int) -> None:
    with pytest.raises(ConfigError):
        plan_pages(1000, CPU, capacity_tokens=capacity_tokens)


def test_without_configuration_a_share_of_free_memory_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 10_000)
    assert plan_pages(1000, CPU).num_pages == 4
    assert plan_pages(1000, CPU, share=0.95).num_pages == 9
    assert plan_pages(1000, CPU, share=1.0, max_tokens=65).num_pages == 2
    with pytest.raises(ConfigError, match="no KV page"):
        plan_pages(20_000, CPU)


def test_cuda_asks_the_device(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5000, 9000))
    assert plan_pages(1000, torch.device("cuda", 0)).num_pages == 4


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_linux_says_what_is_available(tmp_path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:  100 kB\nMemAvailable:    7 kB\n")
    assert available_host_bytes(tmp_path) == 7 * 1024


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ],
)
def test_limits_of_control_groups_count(tmp_path, limit: str, used: str) -> None:
    write(tmp_path, "proc/meminfo", "MemAvailable:    7 kB\n")
    write(tmp_path, f"sys/fs/cgroup/{limit}", "5000\n")
    write(tmp_path, f"sys/fs/cgroup/{used}", "3000\n")
    assert available_host_bytes(tmp_path) == 2000
    stat = Path(f"sys/fs/cgroup/{limit}").parent / "memory.stat"
    write(tmp_path, str(stat), "anon 1\ninactive_file 500\n")
    assert available_host_bytes(tmp_path) == 2500


def test_no_limit_is_no_bound(tmp_path) -> None:
    write(tmp_path, "proc/meminfo", "MemAvailable:    7 kB\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "3000\n")
    assert available_host_bytes(tmp_path) == 7 * 1024


def test_unknown_systems_get_a_share_of_all_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "_total_host_bytes", lambda: 1000)
    assert available_host_bytes(tmp_path) == 500


def test_this_machine_has_memory() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_host_bytes() <= total


@pytest.mark.parametrize("num_bytes", [0, 1, 4097])
def test_host_memory_is_writable_and_zero(num_bytes: int) -> None:
    view = HostMemory(CPU).allocate_host(num_bytes)
    assert (view.nbytes, view.format, view.ndim, view.readonly) == (num_bytes, "B", 1, False)
    assert bytes(view) == bytes(num_bytes)
    if num_bytes:
        view[0] = 255
        assert view[0] == 255


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux' proc")
def test_large_host_memory_takes_no_room_before_use() -> None:
    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = resident_pages()
    view = HostMemory(CPU).allocate_host(2**30)
    assert view[2**30 - 1] == 0
    assert (resident_pages() - before) * os.sysconf("SC_PAGE_SIZE") < 2**28


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="num_bytes"):
        HostMemory(CPU).allocate_host(-1)


def test_pins_never_cross_a_border() -> None:
    start = 3 * PIN_CHUNK_BYTES - 100
    ranges = list(pin_ranges(start, PIN_CHUNK_BYTES + 300))
    assert ranges == [
        (start, 100),
        (3 * PIN_CHUNK_BYTES, PIN_CHUNK_BYTES),
        (4 * PIN_CHUNK_BYTES, 200),
    ]
    assert list(pin_ranges(start, 0)) == []


class FakeRuntime:
    """Counts pins; the n-th fails."""

    def __init__(self, failing: int = -1) -> None:
        self.pinned: list[int] = []
        self.failing = failing

    def cudaHostRegister(self, address: int, length: int, flags: int) -> int:
        if len(self.pinned) == self.failing:
            return 2
        self.pinned.append(address)
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        self.pinned.remove(address)
        return 0


def test_pinned_memory_lives_as_long_as_its_views(monkeypatch) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(host_memory, "_cuda_runtime", lambda: runtime)
    monkeypatch.setattr(host_memory, "PIN_CHUNK_BYTES", 4096)
    view = HostMemory(torch.device("cuda")).allocate_host(10_000)
    part = view[5000:6000]
    assert len(runtime.pinned) >= 3
    array = weakref.ref(part.obj)
    del view
    gc.collect()
    assert array() is not None
    part[:] = bytes([3]) * 1000
    assert np.frombuffer(part, np.uint8).sum() == 3000
    del part
    gc.collect()
    assert runtime.pinned == []


def test_a_refused_pin_leaves_nothing_pinned(monkeypatch) -> None:
    runtime = FakeRuntime(failing=1)
    monkeypatch.setattr(host_memory, "_cuda_runtime", lambda: runtime)
    monkeypatch.setattr(host_memory, "PIN_CHUNK_BYTES", 4096)
    with pytest.raises(host_memory.PinFailed, match="10000 bytes"):
        HostMemory(torch.device("cuda")).allocate_host(10_000)
    assert runtime.pinned == []


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads Linux' proc")
def test_host_memory_comes_in_small_pages() -> None:
    view = HostMemory(CPU).allocate_host(2**24)
    address = np.asarray(view).ctypes.data
    smaps = Path("/proc/self/smaps").read_text()
    (flags,) = (
        flags
        for first, end, flags in re.findall(
            r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: (.*?)$", smaps, re.MULTILINE | re.DOTALL
        )
        if int(first, 16) <= address < int(end, 16)
    )
    assert "nh" in flags.split()
