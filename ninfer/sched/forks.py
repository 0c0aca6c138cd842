"""Requests that start from another one's prompt, and whom they wait for. Knows nothing about lanes or caches."""

from ninfer.core.request import GenerationRequest


class Forks:
    """Leaders whose prompt is still being computed, with forks waiting for it (the choices of n > 1)."""

    def __init__(self) -> None:
        """Start with none."""
        self._leaders: set[str] = set()
        self._computing: set[str] = set()
        self._computed: list[str] = []

    def add(self, leader_id: str, *, has_prompt_left: bool) -> None:
        """A request was queued that forks a live one."""
        self._leaders.add(leader_id)
        if has_prompt_left:
            self._computing.add(leader_id)

    def is_leader(self, request_id: str) -> bool:
        """Tell whether requests fork this one."""
        return request_id in self._leaders

    def is_held_back(self, request: GenerationRequest) -> bool:
        """Tell whether a request has to wait for its leader's prompt."""
        return request.fork_of in self._computing

    def prompt_computed(self, leader_id: str) -> None:
        """A leader's prompt is computed; the copies it leaves are made by the next step."""
        self._computed.append(leader_id)

    def copies_made(self) -> None:
        """A step made the copies of leaders that were computed before it: their forks may start."""
        self._computing.difference_update(self._computed)
        self._computed = []

    def forget(self, request_id: str) -> None:
        """A request ended."""
        self._leaders.discard(request_id)
        self._computing.discard(request_id)
