"""The MTP decoder with answers slipped in: the head of a random model is never right, and rejection must be tested too."""

import random

from ninfer_spec_mtp.decoder import MtpDecoder

from ninfer.api import Draft


class HelpedDecoder(MtpDecoder):
    """Drafts as the head does, then replaces some leading guesses by the right ones.

    Attributes:
        made: (tokens so far, tokens the head itself drafted), for comparing drafts of equal contexts.
    """

    def __init__(self, head, *, max_tokens, seed=0, help_odds=0.7):
        super().__init__(head, max_tokens=max_tokens)
        self._rng = random.Random(seed)
        self._help_odds = help_odds
        self._answers = {}
        self.made = []

    def learn(self, prompt, answer):
        self._answers[tuple(prompt)] = answer

    def draft(self, requests):
        drafts = super().draft(requests)
        for request, draft in zip(requests, drafts, strict=True):
            self.made.append((tuple(request.token_ids), draft.token_ids))
        return [
            Draft(lane=draft.lane, token_ids=self._helped(request, draft.token_ids))
            for request, draft in zip(requests, drafts, strict=True)
        ]

    def _helped(self, request, drafted):
        if not drafted or self._rng.random() > self._help_odds:
            return drafted
        right = self._next(tuple(request.token_ids), len(drafted))
        num_right = self._rng.randint(0, len(right))
        return (*right[:num_right], *drafted[num_right:])

    def _next(self, so_far, most):
        for prompt, answer in self._answers.items():
            whole = (*prompt, *answer)
            if len(so_far) > len(prompt) and whole[: len(so_far)] == so_far:
                return whole[len(so_far) : len(so_far) + most]
        return ()
