import pytest
import torch

from ninfer.exec.calibrate import PrefillSpeed, calibrate_prefill
from ninfer.kernels.kv_pool import KvPool
from ninfer.obs.clock import SystemClock
from ninfer.testing.clock import FakeClock


class PricedModel:
    """Computes nothing; each token costs `base + position * growth` seconds on a fake clock."""

    device = torch.device("cpu")

    def __init__(self, clock: FakeClock, base_s: float, growth_s: float) -> None:
        self.clock, self.base_s, self.growth_s = clock, base_s, growth_s
        self.num_passes = 0

    def forward(self, batch, kv, states):
        (segment,) = batch.segments
        assert segment.position_end <= 64 * kv.num_pages
        assert list(segment.slot_ranges(0, segment.position_end))
        middle = segment.position_start + segment.num_rows / 2
        self.clock.advance(segment.num_rows * (self.base_s + middle * self.growth_s))
        self.num_passes += 1
        return torch.zeros(segment.num_rows, 4)

    def logits(self, hidden):
        return torch.zeros(len(hidden), 9)


def measure(base_s: float, growth_s: float, *, num_pages=200, max_tokens=10**6):
    from ninfer.kernels.kv_pool import KvLayout

    clock = FakeClock(0.0)
    model = PricedModel(clock, base_s, growth_s)
    kv = KvPool(KvLayout(1, 1, 2, torch.float32), num_pages)
    speed = calibrate_prefill(model, kv, seconds=clock.monotonic_s, max_tokens=max_tokens)
    return speed, clock.monotonic_s(), model.num_passes


@pytest.mark.parametrize(("base_s", "growth_s"), [(1e-5, 1e-9), (1e-4, 2e-8), (1e-3, 1e-7)])
def test_the_price_of_tokens_is_found(base_s: float, growth_s: float) -> None:
    speed, spent_s, _ = measure(base_s, growth_s)
    assert speed.tokens_per_s == pytest.approx(1 / base_s, rel=0.05)
    assert speed.seconds_per_token_squared == pytest.approx(growth_s, rel=0.05)
    assert spent_s < 1.5
    expected = sum(base_s + (100 + i + 0.5) * growth_s for i in range(50))
    assert speed.seconds(100, 50) == pytest.approx(expected, rel=0.05)


def test_slow_models_get_few_passes() -> None:
    speed, _, num_passes = measure(0.05, 0.0)
    assert num_passes == 2
    assert speed.tokens_per_s == pytest.approx(20.0, rel=0.05)
    assert speed.seconds_per_token_squared == 0.0


@pytest.mark.parametrize(("num_pages", "max_tokens"), [(1, 10**6), (200, 10), (1, 1)])
def test_small_pools_and_contexts_are_respected(num_pages: int, max_tokens: int) -> None:
    speed, _, _ = measure(1e-4, 1e-7, num_pages=num_pages, max_tokens=max_tokens)
    assert speed.tokens_per_s == pytest.approx(1e4, rel=0.1)


def test_a_real_model_is_measured_in_time(model) -> None:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    speed = calibrate_prefill(
        model, KvPool(model.kv_spec, 32), seconds=clock.monotonic_s, max_tokens=8192
    )
    assert clock.monotonic_s() - begun_s < 3.0
    assert speed.tokens_per_s > 0


def test_speeds_survive_json() -> None:
    speed = PrefillSpeed(1234.5, 1e-8)
    assert PrefillSpeed.from_json(speed.to_json()) == speed
    for text in (
        "{",
        "[]",
        "{}",
        '{"tokens_per_s": 0, "seconds_per_token_squared": 0}',
        '{"tokens_per_s": 5, "seconds_per_token_squared": -1}',
        '{"tokens_per_s": NaN, "seconds_per_token_squared": 0}',
    ):
        with pytest.raises(ValueError, match=r".+"):
            PrefillSpeed.from_json(text)
