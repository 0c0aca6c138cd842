"""Costs of a simulation: formulas, scaling to blocks, what a server measured."""

import pytest

from ninfer.api import ConfigError
from ninfer.simulate.costs import Costs, Link, with_calibration


def test_prefill_grows_with_the_position_and_sums_over_parts():
    costs = Costs(seconds_per_token=1e-3, seconds_per_token_squared=1e-6)
    whole = costs.prefill_s(0, 1000)
    assert whole == pytest.approx(1.0 + 1e-6 * 999 * 1000 / 2)
    assert costs.prefill_s(0, 400) + costs.prefill_s(400, 600) == pytest.approx(whole)


def test_a_token_that_stands_for_eight_costs_what_eight_cost():
    costs = Costs(bytes_per_token=10, seconds_per_token=1e-3, seconds_per_token_squared=1e-6)
    scaled = costs.per_block(512, 64)
    assert scaled.bytes_per_token == 80
    assert scaled.prefill_s(64, 64) == pytest.approx(costs.prefill_s(512, 512), rel=0.01)


def test_what_a_server_measured_replaces_the_defaults(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(
        '{"version": 1, "links": {"host>device": {"latency_s": 0.5, "seconds_per_byte": 1e-9}},'
        ' "prefill": {"seconds_per_token": 0.01, "seconds_per_token_squared": 1e-7}}'
    )
    costs = with_calibration(Costs(bytes_per_token=7), path)
    assert costs.links["host>device"] == Link(latency_s=0.5, seconds_per_byte=1e-9)
    assert costs.links["device>host"] == Costs().links["device>host"]
    assert (costs.bytes_per_token, costs.seconds_per_token) == (7, 0.01)
    path.write_text("{}")
    assert with_calibration(Costs(), path) == Costs()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "Invalid JSON"),
        ('{"prefill": {"seconds_per_token": 0}}', "prefill.seconds_per_token"),
        ('{"links": {"host>device": {"latency_s": -1, "seconds_per_byte": 1}}}', "latency_s"),
    ],
)
def test_a_wrong_calibration_is_an_error_that_names_the_field(tmp_path, text, complaint):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        with_calibration(Costs(), path)
    with pytest.raises(ConfigError, match="cannot be read"):
        with_calibration(Costs(), tmp_path / "missing.json")
