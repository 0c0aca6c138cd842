"""The conformance suite of placement policies. Knows nothing about any implementation."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, ParamSpec

from hypothesis import strategies as st

from ninfer.api import (
    Degraded,
    PlacementPolicy,
    PolicyContext,
    PrefillObserved,
    TierFacts,
    TransferObserved,
)
from ninfer.testing.damage import damages_of
from ninfer.testing.policy_answers import PolicyAnswers
from ninfer.testing.policy_facts import (
    CORNER_HISTORY,
    EMPTY_OBSERVATIONS,
    ORDINARY_HISTORY,
    PAGE_BYTES,
    TIERS,
    Observation,
    outcome,
    page,
    transfer,
    unmeasured,
)
from ninfer.testing.policy_harness import FINGERPRINT, answers_of, prices_of, teach
from ninfer.testing.policy_store import SimulatedStore
from ninfer.testing.requirement import requirement
from ninfer.testing.work import instructions_of, system_calls_of

P = ParamSpec("P")

_ROUNDS_TO_SETTLE: Final = 60
_SETTLED_ROUNDS: Final = 20
_USE_S: Final = 60.0
_MAX_INSTRUCTIONS: Final = 2_000
_MAX_INSTRUCTIONS_PER_VICTIM: Final = 1_000
_MANY_VICTIMS: Final = 500
_WARM_UP_QUESTIONS: Final = 2_000


class PlacementPolicySuite(PolicyAnswers):
    """Numbered tests of the contract `PlacementPolicy`. A subclass says how to open one."""

    @requirement("POLICY-13")
    def test_movement_stops_when_what_is_used_fits(self) -> None:
        """When the same objects are used over and over and fit on the device, they soon stop moving."""

        def check(num_used: int, num_idle: int, num_host: int, num_uses: int) -> None:
            with self.opened() as policy:
                store = SimulatedStore(policy, self.clock, (num_used + 3, num_host, 64))
                used = [(f"used-{at}", 64 * (at + 1)) for at in range(num_used)]
                idle = [(f"idle-{at}", 64 * (at % 40 + 1)) for at in range(num_idle)]
                for name, position in [*used, *idle * num_uses]:
                    self.clock.advance(1.0)
                    store.use(name, position)
                moves = [self._moves_of_round(store, used) for _ in range(_ROUNDS_TO_SETTLE)]
                late = [self._moves_of_round(store, used) for _ in range(_SETTLED_ROUNDS)]
            self.expect_that(
                f"moves in rounds {_ROUNDS_TO_SETTLE} to {_ROUNDS_TO_SETTLE + _SETTLED_ROUNDS}, {num_used} objects "
                f"used in turn with room for {num_used + 3}, {num_idle} idle ones used {num_uses} times before",
                holds=not any(late),
                got=f"{late} after {moves}",
                wanted="none",
            )

        check(5, 30, 24, 1)
        self.explore(
            check,
            num_used=st.integers(1, 8),
            num_idle=st.integers(0, 40),
            num_host=st.integers(1, 40),
            num_uses=st.integers(1, 3),
        )

    def _moves_of_round(self, store: SimulatedStore, used: list[tuple[str, int]]) -> int:
        before = store.num_moves
        for name, position in used:
            self.clock.advance(_USE_S)
            store.use(name, position)
        return store.num_moves - before

    @requirement("POLICY-14")
    def test_any_evicted_value_is_taken(self) -> None:
        """`evicted` takes every value that `keep_value` may give, and answers stay numbers."""

        def check(values: list[float]) -> None:
            with self.opened() as policy:
                for value in values:
                    self._do(f"evicted({value})", policy.evicted, value)
                self.expect_sound(f"after evicted of {values}", policy)

        for values in ([0.0], [-1.0, 1e-300], [1e18, -1e18], [float("-inf")]):
            check(values)
        self.explore(check, values=st.lists(st.floats(-1e18, 1e18), max_size=20))

    @requirement("POLICY-15")
    def test_any_observation_is_taken(self) -> None:
        """`observe_transfer` and `observe_prefill` take every measurement, and answers stay numbers."""

        def check(history: list[Observation]) -> None:
            with self.opened() as policy:
                for observed in history:
                    self._do(f"observing {observed}", teach, policy, [observed])
                    self.expect_sound(f"after observing {observed}", policy)

        for observed in (*CORNER_HISTORY, *EMPTY_OBSERVATIONS):
            check([observed] * 3)
        check([*CORNER_HISTORY, *ORDINARY_HISTORY])
        seconds = st.floats(0.0, 1e5)
        tokens = st.integers(0, 1_000_000)
        transfers = st.builds(
            TransferObserved,
            source_index=st.just(1),
            target_index=st.sampled_from((0, 2)),
            num_bytes=st.integers(0, 1 << 44),
            seconds=seconds,
        )
        prefills = st.builds(
            PrefillObserved, start_tokens=tokens, num_tokens=tokens, seconds=seconds
        )
        self.explore(check, history=st.lists(st.one_of(transfers, prefills), max_size=8))

    def _do(self, what: str, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - reported with what caused it
            self.fail(what, got=error, wanted="no error")

    @requirement("POLICY-16")
    def test_work_of_a_call_is_bounded(self) -> None:
        """A call does little work, the same after thousands of questions; a price grows with its victims only."""
        victims = [
            Degraded(facts=page(num_uses=at + 1), target_index=1) for at in range(_MANY_VICTIMS)
        ]
        large = outcome(transfers=[transfer(PAGE_BYTES)] * 8, degraded=victims)
        with self.opened() as policy:
            for at in range(_WARM_UP_QUESTIONS):
                policy.evicted(policy.keep_value(page(last_use_index=at, num_uses=at % 7 + 1)))
            teach(policy, ORDINARY_HISTORY)
            calls: dict[str, Callable[[], object]] = {
                "keep_value": lambda: policy.keep_value(page(num_uses=3)),
                "wants_copy": lambda: policy.wants_copy(page(num_uses=3), 1),
                "evicted": lambda: policy.evicted(1_000.0),
                "observe_transfer and observe_prefill": lambda: teach(policy, ORDINARY_HISTORY[:4]),
                "price_s": lambda: policy.price_s(large),
            }
            limits = dict.fromkeys(calls, _MAX_INSTRUCTIONS)
            limits["observe_transfer and observe_prefill"] *= 4
            limits["price_s"] += _MANY_VICTIMS * _MAX_INSTRUCTIONS_PER_VICTIM
            for name, call in calls.items():
                got = instructions_of(call, limit=limits[name] + 1)
                self.expect_that(
                    f"work of {name}, {len(victims)} victims in a price",
                    holds=got <= limits[name],
                    got=f"{got} or more" if got > limits[name] else got,
                    wanted=f"at most {limits[name]}",
                    unit="Python instructions",
                )

    @requirement("POLICY-17")
    def test_calls_touch_no_files(self) -> None:
        """Between opening and closing no call touches files, sockets or processes, or sleeps."""
        with self.opened() as policy:

            def use() -> None:
                teach(policy, ORDINARY_HISTORY)
                policy.evicted(1_000.0)
                answers_of(policy)

            self.expect("system calls of an hour's work", got=system_calls_of(use), wanted=[])

    @requirement("POLICY-18")
    def test_what_close_saved_can_be_opened(self) -> None:
        """After a close a policy opens again on the same folder, several times, and answers."""
        context = self.context(tiers=unmeasured(TIERS), prefill_tokens_per_s=0.0)
        for number in range(1, 4):
            what = f"opening number {number} on one folder"
            policy = self._open_or_fail(what, context)
            teach(policy, ORDINARY_HISTORY)
            self.expect_sound(what, policy)
            policy.close()

    def _open_or_fail(self, what: str, context: PolicyContext) -> PlacementPolicy:
        try:
            return self.open_policy(context)
        except Exception as error:  # noqa: BLE001 - reported with what was done before
            self.fail(what, got=error, wanted="an open policy")

    @requirement("POLICY-19")
    def test_damaged_files_are_survived(self) -> None:
        """Damaged or foreign contents in its files cost a policy what it learned, nothing more."""
        saved = self._saved_by_a_policy()
        files = sorted(each.relative_to(saved) for each in saved.rglob("*") if each.is_file())
        self.requires("a policy that saves files below cache_dir", holds=bool(files))
        for file in files:
            for damage, do_damage in damages_of(saved / file):
                do_damage()
                copied = self.new_folder() / "copy"
                shutil.copytree(saved, copied)
                what = f"{file} {damage}"
                context = self.context(copied, tiers=unmeasured(TIERS), prefill_tokens_per_s=0.0)
                policy = self._open_or_fail(what, context)
                self.expect_sound(what, policy)
                self._do(f"close, {what}", policy.close)
                if (saved / file).is_dir():
                    (saved / file).rmdir()

    def _saved_by_a_policy(self) -> Path:
        context = self.context(tiers=unmeasured(TIERS), prefill_tokens_per_s=0.0)
        with self.opened(context) as policy:
            teach(policy, ORDINARY_HISTORY)
        return context.cache_dir

    @requirement("POLICY-20")
    def test_folder_that_cannot_be_written_is_survived(self) -> None:
        """A cache folder that cannot be made or written costs a policy what it learned, nothing more."""
        occupied = self.folder / "occupied"
        occupied.write_text("a file where the folder should be")
        for cache_dir in (occupied, occupied / "below"):
            what = f"cache_dir {cache_dir.relative_to(self.folder)}, which cannot be a folder"
            context = self.context(cache_dir)
            policy = self._open_or_fail(what, context)
            teach(policy, ORDINARY_HISTORY)
            self.expect_sound(what, policy)
            self._do(f"close, {what}", policy.close)

    @requirement("POLICY-21")
    def test_files_are_kept_in_a_subfolder(self) -> None:
        """A policy keeps its files in a subfolder of the cache folder and leaves others' files alone."""
        cache_dir = self.new_folder()
        foreign = {"notes.txt": "of somebody else", "policy.json": "{}"}
        for name, text in foreign.items():
            (cache_dir / name).write_text(text)
        context = self.context(cache_dir, tiers=unmeasured(TIERS), prefill_tokens_per_s=0.0)
        with self.opened(context) as policy:
            teach(policy, ORDINARY_HISTORY)
        found = {each.name: each.read_text() for each in cache_dir.iterdir() if each.is_file()}
        self.expect("files directly in the cache folder", got=found, wanted=foreign)

    @requirement("POLICY-22")
    def test_calibration_of_another_model_is_not_used(self) -> None:
        """What was learned with another model changes no price."""
        saved = self._saved_by_a_policy()
        other_model = bytes(reversed(FINGERPRINT))
        prices = []
        for cache_dir in (saved, self.new_folder()):
            context = self.context(
                cache_dir,
                tiers=unmeasured(TIERS),
                prefill_tokens_per_s=0.0,
                fingerprint=other_model,
            )
            with self.opened(context) as policy:
                prices.append(prices_of(policy))
        what = "prices on a folder with another model's calibration, beside an empty folder"
        self.expect(what, got=prices[0], wanted=prices[1], unit="s")

    @requirement("POLICY-23")
    def test_any_machine_is_fine(self) -> None:
        """Any machine is fine: nothing measured yet, the device alone, many tiers, a slow device."""
        slow = replace(TIERS[1], read_bytes_per_s=1.0, write_bytes_per_s=1.0, read_latency_s=10.0)
        many = [*TIERS, *(replace(TIERS[2], tier_name=f"more-{at}") for at in range(6))]
        machines: dict[str, list[TierFacts]] = {
            "the device alone": [TIERS[0]],
            "nothing measured": list(unmeasured(TIERS)),
            "two tiers, one of them very slow": [TIERS[0], slow],
            "nine tiers": many,
        }
        for name, tiers in machines.items():
            for tokens_per_s in (0.0, 1e-3, 1e9):
                what = f"{name}, prefill {tokens_per_s} tokens/s"
                context = self.context(tiers=tiers, prefill_tokens_per_s=tokens_per_s)
                policy = self._open_or_fail(what, context)
                try:
                    self.expect_sound(what, policy, num_tiers=min(len(tiers), len(TIERS)))
                    for target in range(1, len(tiers)):
                        policy.wants_copy(page(), target)
                except (ArithmeticError, LookupError, ValueError) as error:
                    self.fail(what, got=error, wanted="answers")
                policy.close()

    @requirement("POLICY-24")
    def test_closing_ends_one_instance_only(self) -> None:
        """Closing a policy leaves no thread behind and other instances working."""
        threads = set(threading.enumerate())
        with self.opened() as other:
            self.open_policy(self.context()).close()
            try:
                self.expect_sound("another instance after a close", other)
            except RuntimeError as error:
                self.fail("another instance after a close", got=error, wanted="answers")
        left = sorted(thread.name for thread in set(threading.enumerate()) - threads)
        self.expect("threads left after close", got=left, wanted=[])
