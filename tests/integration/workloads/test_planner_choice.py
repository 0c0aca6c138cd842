"""The planner's shortcut: leaving out what cannot win chooses exactly what pricing every candidate would choose."""

import pytest
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.policy import CostModelPolicy

from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.cache.node import DEVICE
from ninfer.cache.planner import Planner
from tests.fakes.workload import run_workload


def lru(context):
    return LruPolicy.open(context, LruConfig())


def costmodel(context):
    return CostModelPolicy.open(context, CostModelConfig(save_calibration=False))


def exhaustive(planner, need, prefix):
    deepest = planner._deepest(need, prefix)
    direct = planner._layout(need, prefix, deepest)
    if deepest.slowest_tier == DEVICE and planner._fits_free(need, direct):
        return direct
    rooms = {}
    layouts = [
        planner._layout(need, prefix, point) for point in planner._candidates(need, prefix, deepest)
    ]
    outcomes = [planner._with_room(need, prefix, layout, rooms) for layout in layouts]
    outcomes = [outcome for outcome in outcomes if outcome is not None]
    if not outcomes:
        return None
    best = min(outcomes, key=lambda outcome: planner._price_s(need, outcome))
    return None if best.waits else best


def summary(outcome):
    if outcome is None:
        return None
    plan = outcome.eviction
    return (
        outcome.point,
        outcome.num_shared_pages,
        [id(node) for node in outcome.restores],
        outcome.num_new_pages,
        [(id(v.stored), v.tier, v.target) for v in (*plan.victims, *plan.displaced)],
        [(id(stored), tier, target) for stored, tier, target in plan.dirty],
    )


@pytest.mark.parametrize("seed", range(25))
def test_leaving_out_candidates_that_cannot_win_changes_no_plan(seed, monkeypatch):
    plan = Planner.plan
    counts = {"planned": 0}

    def compared(planner, need, prefix):
        found = plan(planner, need, prefix)
        wanted = exhaustive(planner, need, prefix)
        assert summary(found) == summary(wanted)
        counts["planned"] += 1
        return found

    monkeypatch.setattr(Planner, "plan", compared)
    run_workload(seed, policies=[lru, costmodel])
    assert counts["planned"] > 0
