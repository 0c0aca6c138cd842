from prometheus_client import CollectorRegistry

from ninfer.obs.metrics import MetricSample, SampleCollector, render_metrics


def test_samples_of_one_name_share_a_family():
    samples = [
        MetricSample(
            name="x_bytes_total", kind="counter", help="Bytes.", value=1, labels={"tier": "host"}
        ),
        MetricSample(name="free_pages", kind="gauge", help="Pages.", value=2.5),
        MetricSample(
            name="x_bytes_total", kind="counter", help="Bytes.", value=3, labels={"tier": 'a"b\n'}
        ),
    ]
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: samples))
    lines = render_metrics(registry).decode().splitlines()
    assert lines == [
        "# HELP x_bytes_total Bytes.",
        "# TYPE x_bytes_total counter",
        'x_bytes_total{tier="host"} 1.0',
        'x_bytes_total{tier="a\\"b\\n"} 3.0',
        "# HELP free_pages Pages.",
        "# TYPE free_pages gauge",
        "free_pages 2.5",
    ]


def test_samples_are_read_at_each_scrape():
    values = iter([1, 2])
    registry = CollectorRegistry()
    registry.register(
        SampleCollector(
            lambda: [MetricSample(name="x", kind="gauge", help="X.", value=next(values))]
        )
    )
    assert b"x 1.0" in render_metrics(registry)
    assert b"x 2.0" in render_metrics(registry)
