"""A model of integers: its next token depends on every byte of KV it reads and on its recurrent state.

KV of position p is 8 bytes mixed from the token and everything before it, read back through the block table; any wrong
page, offset, stale byte or state at another position changes the tokens that follow.
"""

import struct
import threading

from ninfer.core.request import TokenLogprob  # noqa: F401
from ninfer.core.step import PAGE_SIZE_TOKENS, ChunkOutput, DeviceLayout, StepOutput, StepPlan

MASK = (1 << 61) - 1
ENTRY = struct.Struct("<Q")
PAGE_BYTES = PAGE_SIZE_TOKENS * ENTRY.size
STATE_BYTES = 16


def mix(*values: int) -> int:
    acc = 0x9E3779B97F4A7C15 & MASK
    for value in values:
        acc = ((acc ^ value) * 0x5DEECE66D + 0xB) & MASK
        acc ^= acc >> 29
    return acc


class Mind:
    """The pure function: tokens in, next token out. Used by the fake device and by the cold oracle."""

    def __init__(self, vocab: int, has_state: bool):
        self.vocab = vocab
        self.has_state = has_state

    def entry(self, token: int, position: int, seen: int) -> int:
        return mix(token + 1, position, seen)

    def see(self, seen: int, entry: int) -> int:
        return mix(seen, entry)

    def feel(self, state: int, token: int) -> int:
        return mix(state, token + 7)

    def next_token(self, seen: int, state: int) -> int:
        return mix(seen, state if self.has_state else 0) % self.vocab

    def cold(self, prompt, num_tokens, stop_ids=frozenset()):
        """Completion of a prompt with no cache at all."""
        tokens, seen, state, out = list(prompt), 0, 0, []
        for position, token in enumerate(tokens):
            seen, state = self.see(seen, self.entry(token, position, seen)), self.feel(state, token)
        while len(out) < num_tokens:
            token = self.next_token(seen, state)
            out.append(token)
            if token in stop_ids:
                break
            seen = self.see(seen, self.entry(token, len(tokens), seen))
            state = self.feel(state, token)
            tokens.append(token)
        return out


class FakeDevice:
    """Runner and copier over plain memory."""

    def __init__(
        self,
        *,
        num_pages,
        num_lanes=4,
        vocab=4,
        has_state=False,
        num_slots=0,
        num_scratch=0,
        seed=0,
    ):
        self.mind = Mind(vocab, has_state)
        self.memory = bytearray(num_pages * PAGE_BYTES)
        for at in range(0, len(self.memory), 8):
            ENTRY.pack_into(self.memory, at, mix(seed, at))
        self.lock = threading.Lock()
        self.open_lanes = set()
        self.fail_lanes = set()
        self.fail_steps = 0
        self.num_computed = 0
        self._layout = DeviceLayout(
            num_pages=num_pages,
            page_pool_bytes={"main": PAGE_BYTES},
            num_state_slots=num_slots if has_state else 0,
            state_image_bytes=STATE_BYTES if has_state else 0,
            num_lanes=num_lanes,
            num_scratch_slots=num_scratch if has_state else 0,
        )
        self.states = bytearray(self._layout.num_all_slots * STATE_BYTES)

    @property
    def layout(self):
        return self._layout

    def open_lane(self, lane, sampling, prompt_token_ids):
        assert lane not in self.open_lanes
        self.open_lanes.add(lane)

    def close_lane(self, lane):
        self.open_lanes.remove(lane)

    # ---- memory
    def _slot(self, runs, position):
        page = position // PAGE_SIZE_TOKENS
        for first, length in runs:
            if page < length:
                return ((first + page) * PAGE_SIZE_TOKENS + position % PAGE_SIZE_TOKENS) * 8
            page -= length
        raise AssertionError("block table is too short")

    def _state(self, slot):
        return struct.unpack_from("<QQ", self.states, slot * STATE_BYTES)

    def _set_state(self, slot, state, position):
        struct.pack_into("<QQ", self.states, slot * STATE_BYTES, state, position)

    def execute(self, plan: StepPlan) -> StepOutput:
        if self.fail_steps:
            self.fail_steps -= 1
            raise RuntimeError("device failed")
        for copy in plan.page_copies:
            n = copy.num_tokens * 8
            s, t = copy.source * PAGE_BYTES, copy.target * PAGE_BYTES
            self.memory[t : t + n] = self.memory[s : s + n]
        for copy in plan.state_copies:
            self._set_state(
                copy.target, *((0, 0) if copy.source is None else self._state(copy.source))
            )
        lanes = [chunk.lane for chunk in plan.chunks]
        assert len(set(lanes)) == len(lanes)
        return StepOutput(chunks=tuple(self._chunk(chunk) for chunk in plan.chunks), forward_s=1e-4)

    def _chunk(self, chunk):
        """Compute all rows as a real model does, wrong guesses too, then say how many guesses were right."""
        assert chunk.lane in self.open_lanes
        seen = 0
        for position in range(chunk.start_tokens):
            (entry,) = ENTRY.unpack_from(self.memory, self._slot(chunk.runs, position))
            seen = self.mind.see(seen, entry)
        state = self._running_state(chunk)
        sampled = []
        for index, token in enumerate(chunk.token_ids):
            position = chunk.start_tokens + index
            entry = self.mind.entry(token, position, seen)
            ENTRY.pack_into(self.memory, self._slot(chunk.runs, position), entry)
            seen, state = self.mind.see(seen, entry), self.mind.feel(state, token)
            sampled.append(self.mind.next_token(seen, state))
            if chunk.state_slots_after:
                self._set_state(chunk.state_slots_after[index], state, position + 1)
        if self.mind.has_state and not chunk.state_slots_after:
            self._set_state(chunk.state_slot, state, chunk.start_tokens + len(chunk.token_ids))
        if chunk.capture_slot is not None:
            self._set_state(chunk.capture_slot, *self._state(chunk.state_slot))
        if chunk.lane in self.fail_lanes:
            self.fail_lanes.discard(chunk.lane)
            return ChunkOutput(lane=chunk.lane, error="bad bytes from the sampler")
        return self._verified(chunk, sampled)

    def _running_state(self, chunk):
        if not self.mind.has_state:
            return 0
        slots = chunk.state_slots_after
        assert len(slots) == (len(chunk.token_ids) if chunk.num_draft else 0)
        assert len(set(slots)) == len(slots)
        state, at = self._state(chunk.state_slot)
        assert at == chunk.start_tokens, f"state at {at}, KV at {chunk.start_tokens}"
        return state

    def _verified(self, chunk, sampled):
        first = len(chunk.token_ids) - chunk.num_draft - 1
        accepted = 0
        while (
            accepted < chunk.num_draft
            and chunk.token_ids[first + 1 + accepted] == sampled[first + accepted]
        ):
            accepted += 1
        self.num_computed += first + 1 + accepted
        if not chunk.samples:
            return ChunkOutput(lane=chunk.lane)
        token_ids = tuple(sampled[first : first + 1 + accepted])
        return ChunkOutput(lane=chunk.lane, token_ids=token_ids, num_accepted=accepted)

    # ---- copier
    def copy_page_out(self, page, buffer):
        buffer[:] = self.memory[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]

    def copy_page_in(self, page, buffer):
        self.memory[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = buffer

    def copy_pages_out(self, pages, buffer):
        for at, page in enumerate(pages):
            self.copy_page_out(page, buffer[at * PAGE_BYTES : (at + 1) * PAGE_BYTES])

    def copy_pages_in(self, pages, buffer):
        for at, page in enumerate(pages):
            self.copy_page_in(page, buffer[at * PAGE_BYTES : (at + 1) * PAGE_BYTES])

    def copy_state_out(self, slot, buffer):
        buffer[:] = self.states[slot * STATE_BYTES : (slot + 1) * STATE_BYTES]

    def copy_state_in(self, slot, buffer):
        self.states[slot * STATE_BYTES : (slot + 1) * STATE_BYTES] = buffer
