"""A start costs one header per stored image: no payload is read, and twice as many cost about twice as much."""

from benchmarks.disk_startup import start_seconds


def test_a_start_costs_a_bounded_time_for_each_image(tmp_path):
    few = start_seconds(tmp_path / "few", 300)["cpu"]
    many = start_seconds(tmp_path / "many", 1_200)["cpu"]
    # Processor time, since other tests run beside this one; the bound is ten times that of a quiet machine.
    assert many < 1.2
    assert many < 16 * max(few, 0.05), "the cost of an image must not grow with their number"
