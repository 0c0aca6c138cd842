"""`transformers` in a process of its own: it loads the same weights, and works only while it is asked to.

Reads one JSON object per line from standard input and answers one per line:
`{"op": "decode", "ids": [...], "num_new": 64}` with the times of the new tokens,
`{"op": "prefill", "ids": [...]}` with the seconds of one forward pass.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

THREADS = 2


class Baseline:
    """The other end, used in the measuring process.

    Args:
        dtype: of weights and arithmetic.
        model: name or folder of the model.
        threads: CPU threads of torch.
    """

    def __init__(
        self, dtype: str = "bfloat16", *, model: str = "smollm2", threads: int = THREADS
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.baseline", dtype, model, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TQDM_DISABLE": "1"},
        )
        self.facts = self._read()

    def decode_s(self, ids: Sequence[int], num_new: int) -> list[float]:
        """Return when each new token of a greedy `generate` came; the first is the end of the prefill."""
        return self._ask({"op": "decode", "ids": list(ids), "num_new": num_new})["token_s"]

    def prefill_s(self, ids: Sequence[int]) -> float:
        """Return the seconds of one forward pass with the logits of the last token."""
        return self._ask({"op": "prefill", "ids": list(ids)})["seconds"]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the transformers process has ended")
        return json.loads(line)

    def __enter__(self) -> "Baseline":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print goes to standard error

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.generation.streamers import BaseStreamer

    from ninfer.models.resolve import resolve_model

    dtype: torch.dtype = getattr(torch, sys.argv[1])
    torch.set_num_threads(int(sys.argv[3]))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    source = resolve_model(sys.argv[2])
    if source.kind == "gguf":
        model = AutoModelForCausalLM.from_pretrained(
            source.path.parent,
            gguf_file=source.path.name,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
        )
    else:
        model = AutoModelForCausalLM.from_pretrained(source.path, dtype=dtype)

    class Times(BaseStreamer):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def put(self, _value: Any) -> None:
            self.seen.append(time.perf_counter())

        def end(self) -> None:
            pass

    def decode(ids: torch.Tensor, num_new: int) -> dict[str, Any]:
        times = Times()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            streamer=times,
            pad_token_id=0,
        )
        return {"token_s": times.seen[1:]}  # the first call hands over the prompt

    def prefill(ids: torch.Tensor) -> dict[str, Any]:
        start_s = time.perf_counter()
        model(ids, logits_to_keep=1, use_cache=True)
        return {"seconds": time.perf_counter() - start_s}

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    with torch.inference_mode():
        dtypes = sorted({str(p.dtype) for p in model.parameters()})
        attention = model.config._attn_implementation  # noqa: SLF001
        answer({
            "transformers": transformers.__version__,
            "threads": torch.get_num_threads(),
            "dtypes": dtypes,
            "attention": attention,
        })
        for line in sys.stdin:
            question = json.loads(line)
            ids = torch.tensor([question["ids"]])
            if question["op"] == "decode":
                answer(decode(ids, question["num_new"]))
            else:
                answer(prefill(ids))


if __name__ == "__main__":
    main()
