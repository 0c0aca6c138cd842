"""The training loop of one process. Knows nothing about files of the finished model."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor, distributed
from torch.nn import functional

from tools.tiny_hybrid.batch import Batch
from tools.tiny_hybrid.curriculum import Stage, stage_at
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.model import TinyHybrid
from tools.tiny_hybrid.muon import Muon
from tools.tiny_hybrid.shape import Shape

MUON_RATE: Final = 0.02
ADAM_RATE: Final = 4e-3
WARMUP_STEPS: Final = 60
MTP_WEIGHT: Final = 1.0
MTP_HAYSTACKS: Final = 0.25
"""Share of haystack batches that also train the MTP head."""


@dataclass(slots=True)
class Progress:
    """How far a training is.

    Attributes:
        num_steps: optimizer steps.
        num_tokens: tokens read by all processes, padding included.
        seconds: time spent in steps.
    """

    num_steps: int = 0
    num_tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Scores:
    """Running means of what is logged."""

    haystack: float = math.nan
    haystack_right: float = math.nan
    drill: float = math.nan
    chat: float = math.nan
    chat_right: float = math.nan
    mtp_right: float = math.nan

    def blend(self, name: str, value: float) -> None:
        """Take a new value into a mean."""
        old = getattr(self, name)
        setattr(self, name, value if math.isnan(old) else 0.95 * old + 0.05 * value)


class Trainer:
    """Trains one model, alone or with other processes that average gradients."""

    def __init__(
        self, shape: Shape, tokenizer: Tokenizer, *, seed: int, rank: int, world: int
    ) -> None:
        self.model = TinyHybrid(shape, seed=seed)
        self.feed = Feed(tokenizer, shape)
        self.progress = Progress()
        self.scores = Scores()
        self._seed, self._rank, self._world = seed, rank, world
        muon, adam = [], []
        for name, parameter in self.model.named_parameters():
            is_matrix = parameter.ndim == 2 and min(parameter.shape) >= 16
            (muon if is_matrix and "embed_tokens" not in name else adam).append(parameter)
        self._muon = Muon(muon)
        self._adam = torch.optim.AdamW(adam, lr=ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0)

    def train(
        self, *, goes_on: Callable[[], bool], every: Callable[["Trainer", Stage], None]
    ) -> None:
        """Take steps until the curriculum is over or one of the processes wants to stop.

        Args:
            goes_on: asked before each step.
            every: called after each step.
        """
        while self._agreed(goes_on()):
            found = stage_at(self.progress.num_tokens)
            if found is None:
                return
            stage, rate = found
            began = time.monotonic()
            self._step(stage, rate * min(1.0, (self.progress.num_steps + 1) / WARMUP_STEPS))
            self.progress.seconds += time.monotonic() - began
            every(self, stage)

    def save(self, path: Path) -> None:
        """Write everything that continuing needs."""
        state = {
            "model": self.model.state_dict(),
            "muon": self._muon.state_dict(),
            "adam": self._adam.state_dict(),
            "progress": [
                self.progress.num_steps,
                self.progress.num_tokens,
                self.progress.seconds,
            ],
        }
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def load(self, path: Path) -> None:
        """Continue from a file of `save`."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])
        self.progress = Progress(*state["progress"])

    def _step(self, stage: Stage, rate: float) -> None:
        # Lengths come from the step alone: processes wait for each other, so they should do equal work.
        rng = Random(f"{self._seed}/{self.progress.num_steps}")
        low, high = stage.lengths
        length = int(low * (high / low) ** rng.random())
        with_mtp = rng.random() < MTP_HAYSTACKS
        rng = Random(f"{self._seed}/{self.progress.num_steps}/{self._rank}")
        haystacks = self.feed.haystacks(
            rng,
            num_tokens=length,
            rows=max(1, stage.haystack_tokens // length),
            max_needles=max(1, min(stage.max_needles, length // 60)),
            stretch=stage.stretch,
        )
        chats = self.feed.chats(rng, num_tokens=512, rows=max(1, stage.chat_tokens // 512))
        loss, right, _ = self._backward(haystacks, with_mtp=with_mtp)
        self.scores.blend("haystack", loss)
        self.scores.blend("haystack_right", right)
        num_tokens = haystacks.num_tokens + chats.num_tokens
        if stage.drill_tokens:
            size = rng.choice((128, 256, 512))
            drills = self.feed.drills(rng, num_tokens=size, rows=max(1, stage.drill_tokens // size))
            loss, _, _ = self._backward(drills, with_mtp=True)
            self.scores.blend("drill", loss)
            num_tokens += drills.num_tokens
        loss, right, draft_right = self._backward(chats, with_mtp=True)
        self.scores.blend("chat", loss)
        self.scores.blend("chat_right", right)
        self.scores.blend("mtp_right", draft_right)
        # The same sum in all processes: the stage and its learning rate follow from it.
        self.progress.num_tokens += int(self._sum(torch.tensor(float(num_tokens))))
        self._average_gradients()
        torch.nn.utils.clip_grad_norm_(self._adam.param_groups[0]["params"], 1.0)
        self._adam.param_groups[0]["lr"] = ADAM_RATE * rate
        self._adam.step()
        self._muon.step(MUON_RATE * rate, decay=0.1)
        for parameter in self.model.parameters():
            parameter.grad = None
        self.progress.num_steps += 1

    def _backward(self, batch: Batch, *, with_mtp: bool) -> tuple[float, float, float]:
        """Add gradients of a batch; give its loss, its share of right tokens and that of the MTP head."""
        hidden = self.model.model(batch.token_ids, batch.span)
        loss, right = self._loss(hidden, *batch.targets(1))
        plain, draft_right = float(loss.detach()), math.nan
        if with_mtp:
            drafts = self.model.draft_hidden(hidden, batch.token_ids, batch.span)
            draft_loss, draft_right = self._loss(drafts, *batch.targets(2))
            loss = loss + MTP_WEIGHT * draft_loss
        loss.backward()
        return plain, right, draft_right

    def _loss(self, hidden: Tensor, index: Tensor, targets: Tensor) -> tuple[Tensor, float]:
        logits = self.model.logits(hidden.flatten(0, 1)[index])
        right = (logits.argmax(-1) == targets).float().mean()
        return functional.cross_entropy(logits, targets), float(right)

    def _average_gradients(self) -> None:
        if self._world == 1:
            return
        parameters = list(self.model.parameters())
        flat = torch.cat([
            (p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in parameters
        ])
        distributed.all_reduce(flat)
        flat /= self._world
        for parameter, part in zip(
            parameters, flat.split([p.numel() for p in parameters]), strict=True
        ):
            parameter.grad = part.view_as(parameter)

    def _sum(self, value: Tensor) -> Tensor:
        if self._world > 1:
            distributed.all_reduce(value)
        return value

    def _agreed(self, wish: bool) -> bool:
        """Ask whether all processes wish the same, so that all stop after the same step."""
        if self._world == 1:
            return wish
        flag = torch.tensor(float(wish))
        distributed.all_reduce(flag, op=distributed.ReduceOp.MIN)
        return bool(flag)
