"""Slots for running states, guesses and saved states."""

import pytest
import torch

from ninfer.api.errors import ConfigError
from ninfer.exec import memory
from ninfer.exec.memory import plan_pages
from ninfer.exec.state_memory import StateNeed

CPU = torch.device("cpu")


def need(**changes) -> StateNeed:
    sizes = {"image_bytes": 100, "num_lanes": 3, "num_scratch": 0}
    return StateNeed(**{**sizes, **changes})


def test_every_lane_has_a_running_state_slots_for_guesses_and_saved_states() -> None:
    assert need().least_slots == 3 + 4 * 3
    assert need(num_scratch=2).least_slots == 3 * (1 + 2) + 4 * 3
    assert need(num_images=5).least_slots == 3 + 5
    assert need(num_images=5).least_bytes == 800


def test_a_quarter_of_the_room_of_kv_goes_to_more_saved_states() -> None:
    assert need().num_slots(8000, kv_tokens=64_000) == 15 + 20


def test_there_is_never_more_than_one_saved_state_per_page() -> None:
    assert need().num_slots(1_000_000, kv_tokens=640) == 15 + 10


def test_a_configured_number_is_kept() -> None:
    assert need(num_images=7).num_slots(1_000_000, kv_tokens=64_000) == 10
    assert need(num_images=7).share == 0.0


def test_models_without_state_need_no_bytes() -> None:
    none = need(image_bytes=0)
    assert (none.least_bytes, none.share) == (0, 0.0)


def test_pages_leave_room_for_states(monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 10_000)
    assert plan_pages(100, CPU, share=1.0, state_bytes=5_000).num_pages == 50
    assert plan_pages(100, CPU, share=1.0, state_bytes=5_000, state_share=0.25).num_pages == 40
    assert plan_pages(1_000, CPU, capacity_tokens=5 * 64, state_bytes=5_000).num_pages == 5
    message = "needs 6000 bytes beside 5000 bytes of recurrent states, 10000 bytes are free"
    with pytest.raises(ConfigError, match=message):
        plan_pages(1_000, CPU, capacity_tokens=6 * 64, state_bytes=5_000)
    with pytest.raises(ConfigError, match="beside 10000 bytes of recurrent states"):
        plan_pages(1_000, CPU, share=1.0, state_bytes=10_000)
