"""A team of which OpenMP starts fewer threads than it was asked for, as it may with `OMP_DYNAMIC` on a busy machine."""

from dataclasses import replace

from ninfer.kernels.compiled.team import Team


class ShortTeam(Team):
    num_started = 1

    def run(self, function, argument):
        Team.run(replace(Team(**fields(self)), num_threads=self.num_started), function, argument)


def fields(team):
    return {name: getattr(team, name) for name in Team.__dataclass_fields__}


def short_team(num_threads, num_started):
    team = ShortTeam(**fields(Team.of_torch(num_threads)))
    object.__setattr__(team, "num_started", num_started)
    return team
