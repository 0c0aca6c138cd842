"""Greedy answers of a finished model, by transformers. Knows nothing about training."""

from pathlib import Path
from random import Random

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from tools.tiny_hybrid.haystacks import draw_haystack

CHUNK_TOKENS = 2048
MAX_NEW_TOKENS = 128


class Generation:
    """A model directory, read by transformers in float32."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._ends = set(self._model.generation_config.eos_token_id)

    @torch.no_grad()
    def answer(self, prompt: str) -> str:
        """Continue a rendered prompt greedily, the prompt in chunks; give at most MAX_NEW_TOKENS tokens as text."""
        token_ids = torch.tensor([self._tokenizer.encode(prompt, add_special_tokens=False)])
        cache = DynamicCache(config=self._model.config)
        logits = torch.empty(0)
        for chunk in token_ids.split(CHUNK_TOKENS, 1):
            logits = self._model(
                chunk, past_key_values=cache, use_cache=True, logits_to_keep=1
            ).logits
        said: list[int] = []
        while len(said) < MAX_NEW_TOKENS:
            said.append(int(logits[0, -1].argmax()))
            if said[-1] in self._ends:
                break
            logits = self._model(
                torch.tensor([said[-1:]]), past_key_values=cache, use_cache=True
            ).logits
        return str(self._tokenizer.decode(said, skip_special_tokens=True))

    def secrets_found(
        self, *, num_tokens: int, num_haystacks: int, is_thinking: bool = True, seed: int = 1
    ) -> int:
        """Ask for one secret in each of several haystacks; count answers, thoughts included, that have the code in them."""
        rng = Random(f"generation/{seed}/{num_tokens}")
        found = 0
        for _ in range(num_haystacks):
            haystack = draw_haystack(
                rng,
                num_tokens=num_tokens,
                max_needles=1,
                count_tokens=lambda text: len(self._tokenizer.encode(text)),
                is_thinking=is_thinking,
            )
            segments = haystack.chat.segments()
            first = next(index for index, part in enumerate(segments) if part.is_answer)
            prompt = "".join(part.text for part in segments[:first])
            found += haystack.needles[0].code in self.answer(prompt)
        return found
