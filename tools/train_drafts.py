"""Trains the MTP head of a finished `tiny-hybrid` to draft several tokens; all other weights stay as they are.

python tools/train_drafts.py --steps 200 --output FOLDER        FOLDER gets model.safetensors
"""

import argparse
import math
import time
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tools.tiny_hybrid.drafts import draft_losses
from tools.tiny_hybrid.export import load_rounded
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.muon import Muon
from tools.tiny_hybrid.shape import ASSET, Shape

MUON_RATE = 0.01
ADAM_RATE = 1e-3
ROW_TOKENS = 256
MAX_TARGETS = 512
PLACE_WEIGHTS = (1.0, 0.7, 0.5)
SAVE_STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ASSET)
    parser.add_argument("--output", type=Path, required=True, help="folder of the new weights")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=8, help=f"of {ROW_TOKENS} tokens, per step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = Shape()
    weights = load_file(arguments.model / "model.safetensors")
    model = load_rounded(shape, weights)
    model.mtp.requires_grad_()
    feed = Feed(Tokenizer.from_file(str(arguments.model / "tokenizer.json")), shape)
    parameters = list(model.mtp.parameters())
    muon = Muon([p for p in parameters if p.ndim == 2])
    adam = torch.optim.AdamW([p for p in parameters if p.ndim != 2], lr=ADAM_RATE, weight_decay=0.0)
    arguments.output.mkdir(parents=True, exist_ok=True)
    began, means = time.monotonic(), [math.nan] * len(PLACE_WEIGHTS)
    for step in range(1, arguments.steps + 1):
        batch = feed.chats(Random(f"drafts/{step}"), num_tokens=ROW_TOKENS, rows=arguments.rows)
        losses, right = draft_losses(model, batch, max_targets=MAX_TARGETS)
        sum(w * loss for w, loss in zip(PLACE_WEIGHTS, losses, strict=True)).backward()
        rate = min(1.0, step / 10) * (1 - step / (arguments.steps + 1))
        adam.param_groups[0]["lr"] = ADAM_RATE * rate
        adam.step()
        muon.step(MUON_RATE * rate, decay=0.0)
        for parameter in parameters:
            parameter.grad = None
        means = [
            new if math.isnan(old) else 0.9 * old + 0.1 * new
            for old, new in zip(means, right, strict=True)
        ]
        if step % SAVE_STEPS == 0 or step == arguments.steps:
            shares = " ".join(f"{share:.3f}" for share in means)
            print(f"step {step} {time.monotonic() - began:.0f} s right {shares}", flush=True)
            trained = {f"mtp.{name}": tensor for name, tensor in model.mtp.state_dict().items()}
            new = {
                name: trained.get(name, tensor).to(torch.bfloat16)
                for name, tensor in weights.items()
            }
            save_file(
                dict(sorted(new.items())),
                arguments.output / "model.safetensors",
                metadata={"format": "pt"},
            )


if __name__ == "__main__":
    main()
