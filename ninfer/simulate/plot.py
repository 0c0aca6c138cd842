"""Hit rate against capacity as a PNG. The only module that needs matplotlib, the extra `ninfer[plot]`."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ninfer.api import ConfigError
from ninfer.simulate.replay import TIER_NAMES
from ninfer.simulate.study import Study


def require_matplotlib() -> None:
    """Raise before anything long is done.

    Raises:
        ConfigError: matplotlib is missing.
    """
    if find_spec("matplotlib") is None:
        msg = '--plot needs matplotlib, which is not installed: pip install "ninfer[plot]"'
        raise ConfigError(msg)


def plot(path: Path, title: str, studies: Sequence[Study]) -> None:
    """Draw token hit rate against the size of the tier that differs.

    Args:
        path: the PNG file.
        title: above the figure.
        studies: at least one; they differ in the size of the slowest tier.

    Raises:
        ConfigError: the file cannot be written.
    """
    import matplotlib  # noqa: PLC0415 - optional extra

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    ordered = sorted(studies, key=lambda study: study.capacities[-1])
    sizes = [study.capacities[-1] for study in ordered]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for at, result in enumerate(ordered[0].results):
        rates = [study.results[at].token_hit_rate for study in ordered]
        axes.plot(sizes, rates, marker="o", label=result.policy)
    best = [study.optima[-1].token_hit_rate for study in ordered]
    axes.plot(sizes, best, marker="o", linestyle="--", color="grey", label="Belady")
    name = TIER_NAMES[len(ordered[0].capacities) - 1]
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(f"{name}, blocks")
    axes.set_ylabel("prompt tokens served from cache")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.set_title(title)
    axes.legend()
    try:
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise ConfigError(f"--plot {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)
