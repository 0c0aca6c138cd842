"""Measures a model directory like `ninfer/assets/tiny-hybrid`: secrets found per length, loss, drafts accepted.

python tools/eval_tiny.py --lengths 1000,8000,50000 --haystacks 8
python tools/eval_tiny.py --lengths 1000 --transformers          the same with transformers, in chunks of 2048 tokens
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tools.tiny_hybrid.batch import build_batch
from tools.tiny_hybrid.export import load_rounded
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.retrieval import draft_acceptance, held_out_loss, rows_right
from tools.tiny_hybrid.sample import Sample
from tools.tiny_hybrid.shape import ASSET, Shape

CHUNK_TOKENS = 2048


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ASSET)
    parser.add_argument("--lengths", default="256,1000,4000")
    parser.add_argument("--haystacks", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--no-thinking", action="store_true", help="ask for the answer at once, not for the thought"
    )
    parser.add_argument(
        "--transformers",
        action="store_true",
        help="run transformers, not the trainer's forward pass",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shape = Shape()
    feed = Feed(Tokenizer.from_file(str(arguments.model / "tokenizer.json")), shape)
    model = load_rounded(shape, load_file(arguments.model / "model.safetensors"))
    held_out = feed.chats(Random("held-out"), num_tokens=1024, rows=8)
    result: dict[str, object] = {
        "loss": held_out_loss(model, held_out),
        "acceptance": draft_acceptance(model, held_out),
    }
    print(json.dumps(result))
    if arguments.transformers:
        is_right = through_transformers(arguments.model)
    else:

        def is_right(sample: Sample) -> bool:
            return bool(rows_right(model, build_batch([sample], shape))[0])

    for length in map(int, arguments.lengths.split(",")):
        rng, began = Random(f"eval/{arguments.seed}/{length}"), time.monotonic()
        found = sum(
            is_right(
                feed.test_haystack(rng, num_tokens=length, is_thinking=not arguments.no_thinking)
            )
            for _ in range(arguments.haystacks)
        )
        print(
            f"{length:>8} tokens: {found}/{arguments.haystacks}  {time.monotonic() - began:.0f} s",
            flush=True,
        )


def through_transformers(folder: Path) -> Callable[[Sample], bool]:
    """Check answers with transformers in float32, prompt in chunks."""
    from transformers import AutoModelForCausalLM, DynamicCache

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def is_right(sample: Sample) -> bool:
        token_ids = torch.tensor([sample.token_ids])
        cache = DynamicCache(config=model.config)
        first = sample.is_answer.index(True)
        # Chunks end right before the answer, so that all of its scores are in the last one.
        for start in range(0, first - 1, CHUNK_TOKENS):
            chunk = token_ids[:, start : min(start + CHUNK_TOKENS, first - 1)]
            model(chunk, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = model(token_ids[:, first - 1 :], past_key_values=cache, use_cache=True).logits
        said = logits.argmax(-1)[0, :-1].tolist()
        wanted = sample.token_ids[first:]
        flags = sample.is_answer[first:]
        return all(a == b for a, b, flag in zip(said, wanted, flags, strict=True) if flag)

    return is_right


if __name__ == "__main__":
    main()
