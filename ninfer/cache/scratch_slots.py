"""State slots that lanes have for verifying guesses. Knows nothing about guesses or what is in a slot.

A recurrent state cannot be rewound, so a verification step leaves one state per token, and the one after the last
accepted token becomes the lane's. It does so by changing places: its slot becomes the running one, and the old slot
takes its place among the scratch slots. No byte moves, whatever the length of a state. (A state is megabytes per
lane; copying it in every step would cost more than many a guess saves.)
"""

from ninfer.cache.lane_context import LaneContext
from ninfer.cache.store import ContextStore


class ScratchSlots:
    """Slots beside those of the context store, the same number for every lane.

    Invariants: a slot is free here, in one context's `scratch_slots`, or has changed places with one of the store.

    Args:
        store: whose private slots running states are.
    """

    def __init__(self, store: ContextStore) -> None:
        """Start with all slots free."""
        layout = store.layout
        self._store = store
        self._num_per_lane = layout.num_scratch_slots
        self.free = list(range(layout.num_state_slots, layout.num_all_slots))

    def lend(self, context: LaneContext) -> None:
        """Give a context that starts its share."""
        if context.state_slot is not None and self._num_per_lane:
            context.scratch_slots = self.free[-self._num_per_lane :]
            del self.free[-self._num_per_lane :]

    def take_back(self, context: LaneContext) -> None:
        """Take everything back that a context was lent."""
        self.free.extend(context.scratch_slots)
        context.scratch_slots = []

    def keep(self, context: LaneContext, slot: int) -> None:
        """Make a scratch slot the running state of its context; the old one becomes scratch.

        Args:
            context: a running context with a state.
            slot: one of its scratch slots, or its running one, which changes nothing.
        """
        running = context.state_slot
        if running is None or slot == running:
            return
        context.scratch_slots[context.scratch_slots.index(slot)] = running
        context.state_slot = slot
        self._store.private_slots.remove(running)
        self._store.private_slots.add(slot)
