"""How often guesses at each place of a draft were verified and accepted. Counts only."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DraftCounts:
    """Sums by position in the draft, the first guess first.

    Attributes:
        drafted: guesses verified.
        accepted: of those, accepted.
    """

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, num_drafted: int, num_accepted: int) -> None:
        """Count one verified draft."""
        while len(self.drafted) < num_drafted:
            self.drafted.append(0)
            self.accepted.append(0)
        for position in range(num_drafted):
            self.drafted[position] += 1
            self.accepted[position] += position < num_accepted
