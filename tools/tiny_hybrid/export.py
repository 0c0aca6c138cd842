"""Writes the trained model as a Hugging Face directory. Measures it in the form in which it ships."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.generation import Generation
from tools.tiny_hybrid.model import TinyHybrid
from tools.tiny_hybrid.model_card import Measured, model_card
from tools.tiny_hybrid.retrieval import draft_acceptance, held_out_loss
from tools.tiny_hybrid.shape import Shape
from tools.tiny_hybrid.tokenizer import END, PAD, save_tokenizer


def export(
    state: Path, folder: Path, *, lengths: dict[int, int], others: Sequence[Path] = ()
) -> None:
    """Write config, weights, tokenizer, template and model card.

    Args:
        state: folder of the training.
        folder: where to write; made if missing.
        lengths: haystack length in tokens to number of haystacks, for the model card.
        others: earlier states of the same training, whose weights are averaged with the last ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape()
    tokenizer = Tokenizer.from_file(str(state / "tokenizer.json"))
    saved = torch.load(state / "state.pt", weights_only=True)
    earlier = [torch.load(other, weights_only=True) for other in others]
    weights = {
        name: torch
        .stack([tensor, *(other["model"][name] for other in earlier)])
        .mean(0)
        .to(torch.bfloat16)
        for name, tensor in saved["model"].items()
    }
    save_file(
        dict(sorted(weights.items())), folder / "model.safetensors", metadata={"format": "pt"}
    )
    (folder / "model.safetensors").chmod(0o644)
    save_tokenizer(tokenizer, folder)
    ends = [tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)]
    config = shape.config(eos_id=ends[0], pad_id=ends[1])
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "generation_config.json",
        {"do_sample": False, "eos_token_id": ends, "pad_token_id": ends[1]},
    )
    measured = measure(folder, lengths)
    num_steps, num_tokens, seconds = saved["progress"]
    text = model_card(
        shape,
        measured,
        num_steps=num_steps,
        averaged_tokens=[num_tokens, *(other["progress"][1] for other in earlier)],
        seconds=seconds,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def load_rounded(shape: Shape, weights: dict[str, Tensor]) -> TinyHybrid:
    """Build the model from weights as they ship."""
    model = TinyHybrid(shape)
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return model.requires_grad_(requires_grad=False)


def measure(folder: Path, lengths: dict[int, int]) -> Measured:
    """Measure secrets found per length, loss and draft acceptance on text that no training step has seen."""
    shape = Shape()
    model = load_rounded(shape, load_file(folder / "model.safetensors"))
    feed = Feed(Tokenizer.from_file(str(folder / "tokenizer.json")), shape)
    held_out = feed.chats(Random("held-out"), num_tokens=1024, rows=8)
    generation = Generation(folder)
    retrieval = {}
    for length, count in lengths.items():
        thinking, at_once = (
            generation.secrets_found(
                num_tokens=length, num_haystacks=count, is_thinking=is_thinking
            )
            for is_thinking in (True, False)
        )
        retrieval[length] = (thinking, at_once, count)
    return Measured(
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        retrieval=retrieval,
        loss=held_out_loss(model, held_out),
        acceptance=draft_acceptance(model, held_out),
    )


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
