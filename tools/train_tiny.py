"""Trains `tiny-hybrid`, or exports what has been trained.

python tools/train_tiny.py --minutes 60 --resume DIR        train, or go on training; DIR is outside the repository; a file
                                                                DIR/stop ends it early
python tools/train_tiny.py --resume DIR --export FOLDER     write config, weights, tokenizer, template, model card
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import distributed, multiprocessing

from tools.tiny_hybrid.curriculum import Stage
from tools.tiny_hybrid.export import export
from tools.tiny_hybrid.retrieval import retrieval_accuracy
from tools.tiny_hybrid.shape import Shape
from tools.tiny_hybrid.tokenizer import train_tokenizer
from tools.tiny_hybrid.trainer import Trainer

LOG_STEPS = 10
SAVE_SECONDS = 120.0
MEASURE_STEPS = 500


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--resume", type=Path, required=True, help="folder of the training's state")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long to train")
    parser.add_argument("--processes", type=int, default=2, help="one thread each")
    parser.add_argument("--nice", type=int, default=19, help="how much others go first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--export", type=Path, help="folder to write the model to")
    parser.add_argument(
        "--average",
        type=Path,
        nargs="*",
        default=[],
        help="earlier state files, averaged with the last",
    )
    parser.add_argument(
        "--lengths", default="256,1000,4000,16000", help="haystacks to measure for the model card"
    )
    arguments = parser.parse_args()
    arguments.resume.mkdir(parents=True, exist_ok=True)
    file = arguments.resume / "tokenizer.json"
    if not file.is_file():
        train_tokenizer(Shape().vocab_size).save(str(file))
    if arguments.minutes > 0:
        os.nice(arguments.nice)
        train(arguments)
    if arguments.export:
        lengths = {
            int(length): 4 if int(length) > 5_000 else 16 for length in arguments.lengths.split(",")
        }
        export(arguments.resume, arguments.export, lengths=lengths, others=arguments.average)


def train(arguments: argparse.Namespace) -> None:
    """Train in as many processes as wanted."""
    if arguments.processes == 1:
        work(0, arguments, "")
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        multiprocessing.spawn(work, (arguments, meeting), nprocs=arguments.processes)


def work(rank: int, arguments: argparse.Namespace, meeting: str) -> None:
    """Train as one of the processes."""
    torch.set_num_threads(1)
    if meeting:
        distributed.init_process_group(
            "gloo", init_method=meeting, rank=rank, world_size=arguments.processes
        )
    tokenizer = Tokenizer.from_file(str(arguments.resume / "tokenizer.json"))
    trainer = Trainer(Shape(), tokenizer, seed=arguments.seed, rank=rank, world=arguments.processes)
    file = arguments.resume / "state.pt"
    if file.is_file():
        trainer.load(file)
    saved = time.monotonic()

    def every(trainer: Trainer, stage: Stage) -> None:
        nonlocal saved
        step = trainer.progress.num_steps
        if rank:
            return
        if step % LOG_STEPS == 0:
            report(trainer, stage)
        if step % MEASURE_STEPS == 0:
            length = stage.lengths[1]
            found = {
                size: retrieval_accuracy(
                    trainer.model, trainer.feed, num_tokens=size, num_haystacks=8
                )
                for size in {256, length}
            }
            print(
                "   found:",
                ", ".join(f"{k}: {v:.2f}" for k, v in sorted(found.items())),
                flush=True,
            )
        if time.monotonic() - saved > SAVE_SECONDS:
            trainer.save(file)
            saved = time.monotonic()

    end = time.monotonic() + arguments.minutes * 60
    stop = arguments.resume / "stop"
    trainer.train(goes_on=lambda: time.monotonic() < end and not stop.exists(), every=every)
    if rank == 0:
        trainer.save(file)
    if meeting:
        distributed.destroy_process_group()


def report(trainer: Trainer, stage: Stage) -> None:
    """Print one line about the training."""
    progress, scores = trainer.progress, trainer.scores
    print(
        f"{time.strftime('%H:%M:%S')} step {progress.num_steps} {progress.num_tokens / 1e6:.2f}M tokens"
        f" {progress.num_tokens / progress.seconds:.0f}/s length {stage.lengths[1]}"
        f" | haystack {scores.haystack:.3f} right {scores.haystack_right:.3f} | drill {scores.drill:.3f}"
        f" | chat {scores.chat:.3f} right {scores.chat_right:.3f} draft {scores.mtp_right:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
