"""Speed of the model alone, without scheduler and server, beside `transformers` on the same machine.

    python benchmarks/model_speed.py --model smollm2 --formats plain int8 int4 --lanes 1 4 --prefill 512 2048
    python benchmarks/model_speed.py --model smollm2 --transformers --prefill 512

Run it alone: two busy processes on two cores make everything several times slower.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

import torch

from ninfer.config.cache_dir import user_cache_dir
from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.opening import open_compiler
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import ModelSource, resolve_model
from ninfer.models.transformer import Transformer

CODE = user_cache_dir(os.environ, platform=sys.platform) / "code"
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="bf16", choices=sorted(DTYPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--formats", nargs="*", default=["plain", "int8", "int4"])
    parser.add_argument("--lanes", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--context", type=int, default=256, help="tokens before the decode steps")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--prefill", nargs="*", type=int, default=[512, 2048])
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--torch-only", action="store_true", help="no compiled steps")
    parser.add_argument("--transformers", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source = resolve_model(args.model)
    if args.transformers:
        run_transformers(source, args)
        return
    for weight_format in args.formats:
        start = time.perf_counter()
        compiler = None if args.torch_only else open_compiler(CODE)
        model = load_model(
            source, dtype=DTYPES[args.dtype], weight_format=weight_format, compiler=compiler
        )
        print(f"{weight_format}: load {time.perf_counter() - start:.1f} s, {model.linear_policy}")
        for lanes in args.lanes:
            best, step_s = decode_step_s(model, lanes, args.context, args.steps)
            print(
                f"  decode {lanes} lanes, context {args.context}: median {step_s * 1e3:.1f} ms, {lanes / step_s:.1f} tok/s;"
                f" best {best * 1e3:.1f} ms"
            )
        if weight_format == args.formats[0]:
            for num_tokens in args.prefill:
                seconds = prefill_s(model, num_tokens, args.chunk)
                print(f"  prefill {num_tokens}: {num_tokens / seconds:.0f} tok/s")


def decode_step_s(model: Transformer, lanes: int, context: int, steps: int) -> tuple[float, float]:
    """Best and median seconds of a greedy decode step."""
    pages = (context + steps) // PAGE_SIZE_TOKENS + 1
    kv = KvPool(model.kv_spec, pages * lanes)
    runs = [((lane * pages, pages),) for lane in range(lanes)]
    for lane in range(lanes):
        ids = [(7 * i + lane) % 1000 + 100 for i in range(context)]
        model.forward(ForwardBatch.of(ids, [Segment(0, context, 0, runs[lane])]), kv)
    tokens = [100 + lane for lane in range(lanes)]
    times = []
    for step in range(steps):
        start = time.perf_counter()
        segments = [Segment(lane, 1, context + step, runs[lane]) for lane in range(lanes)]
        hidden = model.forward(ForwardBatch.of(tokens, segments), kv)
        tokens = model.logits(hidden).argmax(-1).tolist()
        times.append(time.perf_counter() - start)
    return min(times), sorted(times)[len(times) // 2]


def prefill_s(model: Transformer, num_tokens: int, chunk: int) -> float:
    """Seconds to prefill one prompt in chunks, and the logits of its last token."""
    pages = -(-num_tokens // PAGE_SIZE_TOKENS)
    kv = KvPool(model.kv_spec, pages)
    ids = [(7 * i) % 1000 + 100 for i in range(num_tokens)]

    def run() -> None:
        hidden = torch.empty(0)
        for begin in range(0, num_tokens, chunk):
            part = ids[begin : begin + chunk]
            segment = Segment(0, len(part), begin, ((0, pages),))
            hidden = model.forward(ForwardBatch.of(part, [segment]), kv)
        model.logits(hidden[-1:])

    return best_s(run, 2 if num_tokens <= 2048 else 1)


def best_s(run: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def run_transformers(source: ModelSource, args: argparse.Namespace) -> None:
    from transformers import AutoModelForCausalLM, GgufConfig

    dtype = DTYPES[args.dtype]
    if source.kind == "gguf":
        model = AutoModelForCausalLM.from_pretrained(
            source.path.parent,
            gguf_file=source.path.name,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=dtype)
    ids = torch.arange(args.context).unsqueeze(0) % 1000 + 100

    def generate_s(num_tokens: int) -> float:
        start = time.perf_counter()
        model.generate(ids, max_new_tokens=num_tokens, min_new_tokens=num_tokens, do_sample=False)
        return time.perf_counter() - start

    with torch.inference_mode():
        generate_s(2)
        step_s = (generate_s(2 + args.steps) - generate_s(2)) / args.steps
        print(f"transformers decode, context {args.context}: {step_s * 1e3:.1f} ms, {1 / step_s:.1f} tok/s")  # fmt: skip
        for num_tokens in args.prefill:
            prompt = torch.arange(num_tokens).unsqueeze(0) % 1000 + 100
            seconds = best_s(lambda prompt=prompt: model(prompt, logits_to_keep=1), 1)
            print(f"transformers prefill {num_tokens}: {num_tokens / seconds:.0f} tok/s")


if __name__ == "__main__":
    main()
