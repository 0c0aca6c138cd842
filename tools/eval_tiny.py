"""Measures a model directory like `ninfer/assets/tiny-hybrid`: loss, drafts accepted, secrets found per length.

python tools/eval_tiny.py --lengths 1000,8000,50000 --haystacks 8
"""

import argparse
import json
import time
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tools.tiny_hybrid.export import load_rounded
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.generation import Generation
from tools.tiny_hybrid.retrieval import draft_acceptance, held_out_loss
from tools.tiny_hybrid.shape import ASSET, Shape


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ASSET)
    parser.add_argument("--lengths", default="256,1000,4000")
    parser.add_argument("--haystacks", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-thinking", action="store_true", help="want the answer at once")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shape = Shape()
    feed = Feed(Tokenizer.from_file(str(arguments.model / "tokenizer.json")), shape)
    model = load_rounded(shape, load_file(arguments.model / "model.safetensors"))
    held_out = feed.chats(Random("held-out"), num_tokens=1024, rows=8)
    measured = {
        "loss": held_out_loss(model, held_out),
        "acceptance": draft_acceptance(model, held_out),
    }
    print(json.dumps(measured))
    generation = Generation(arguments.model)
    for length in map(int, arguments.lengths.split(",")):
        began = time.monotonic()
        found = generation.secrets_found(
            num_tokens=length,
            num_haystacks=arguments.haystacks,
            is_thinking=not arguments.no_thinking,
            seed=arguments.seed,
        )
        seconds = time.monotonic() - began
        print(f"{length:>8} tokens: {found}/{arguments.haystacks}  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
