"""Resident memory of a serving process beyond what it was told to hold, and what the store keeps per page.

The server gets small tiers and enough requests to fill them, so that all of the configured memory has been touched
before it is subtracted.
"""

import gc
import json
import tracemalloc
from pathlib import Path

import torch

from benchmarks.served import THREADS, Bench, random_ids
from benchmarks.startup import Server, serving
from benchmarks.table import Row
from ninfer.cache.identity import encode_tokens
from ninfer.cache.store import ContextStore
from ninfer.cache.tier_space import TierSpace
from ninfer.core.step import PAGE_SIZE_TOKENS, DeviceLayout
from ninfer.kernels.compiled.opening import open_compiler
from ninfer.kernels.linear import Linear
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from ninfer.obs.clock import SystemClock

KV_TOKENS = 2048
HOST_BYTES = 64 << 20
RESIDENT_BOUND_MB = 600
PAGE_BOUND_BYTES = 2048


def measure(bench: Bench) -> list[Row]:
    torch.set_num_threads(THREADS)
    rows = [_store_row(bench)]
    for weights, weight_format in (("dense", "plain"), ("int8", "int8"), ("int4", "int4")):
        weight_bytes, kv_bytes = _sizes(bench, weight_format)
        gc.collect()
        sets = (
            f"model.weights={weights}",
            f"engine.kv_capacity={KV_TOKENS}",
            f'cache.tiers=[{{name = "host", kind = "host", capacity = {HOST_BYTES}}}]',
        )
        with serving(bench, *sets) as server:
            server.wait()
            for number in range(bench.pick(6, 3)):
                _complete(server, random_ids(1500, number))
            resident = _resident(server.process.pid)
        configured = weight_bytes + kv_bytes + HOST_BYTES
        rows.append(
            Row(
                figure=f"resident beyond weights and tiers, {'bf16' if weights == 'dense' else weights} weights",
                measured=(resident["VmRSS"] - configured) / 1e6,
                unit="MB",
                bound=RESIDENT_BOUND_MB,
                sense="at most",
                judged="measured",
                note=f"RSS {resident['VmRSS'] / 1e6:.0f} MB ({resident['RssFile'] / 1e6:.0f} MB of it mapped "
                f"files), weights in all formats {weight_bytes / 1e6:.0f}, KV {kv_bytes / 1e6:.0f}, "
                f"host tier {HOST_BYTES / 1e6:.0f}",
                raw={**resident, "weight_bytes": weight_bytes, "kv_bytes": kv_bytes},
            )
        )
    return rows


def _sizes(bench: Bench, weight_format) -> tuple[int, int]:
    """Bytes of the weights, each stored form once, and of the KV."""
    compiler = open_compiler(bench.folder / "cache" / "code")
    model = load_model(resolve_model("smollm2"), weight_format=weight_format, compiler=compiler)
    found = [thing for thing in gc.get_objects() if type(thing) is Linear]
    embedding = model.config.vocab_size * model.config.hidden_size * 2
    weight_bytes = sum(linear.weight_bytes for linear in found) + embedding
    return weight_bytes, model.kv_spec.token_bytes * KV_TOKENS


def _complete(server: Server, prompt: list[int]) -> None:
    body = json.dumps({"model": "smollm2", "prompt": prompt, "max_tokens": 16})
    status, answer = server.request("POST", "/v1/completions", body)
    if status != 200:
        raise RuntimeError(f"HTTP {status}: {answer[:500]!r}")


def _resident(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    names = ("VmRSS", "VmHWM", "RssAnon", "RssFile")
    return {name: int(fields[name].split()[0]) * 1024 for name in names}


def _store_row(bench: Bench) -> Row:
    """Python's own count of what publishing pages allocates, with a replica on each of three tiers."""
    num_pages, pages_each = bench.pick(20_000, 2_000), 20
    tokens = [encode_tokens(random_ids(PAGE_SIZE_TOKENS, number)) for number in range(pages_each)]
    spaces = [
        TierSpace(
            name=name, capacity_bytes=1 << 50, stored_bytes=lambda header, body: header + body
        )
        for name in ("host", "disk")
    ]
    layout = DeviceLayout(
        num_pages=num_pages,
        page_pool_bytes={"main": 1 << 20},
        num_state_slots=0,
        state_image_bytes=0,
        num_lanes=4,
    )
    store = ContextStore(layout, spaces, lambda facts: float(facts.last_use_index), SystemClock())
    gc.collect()
    tracemalloc.start()
    num_bytes = {}
    nodes = []
    for number in range(num_pages // pages_each):
        parent = store.root_of("")
        for at, plain in enumerate(tokens):
            own = encode_tokens([number, at]) + plain[8:]
            parent, _ = store.publish_page(parent, own, store.take_pages(1)[0])
            nodes.append(parent)
    list_bytes = 8 * num_pages
    num_bytes["device"] = tracemalloc.get_traced_memory()[0] - list_bytes
    for node in nodes:
        for tier in (1, 2):
            store.reserve_replica(node, tier)
            store.commit_replica(node, tier)
        store.names.key_of(node)
    gc.collect()
    num_bytes["device, host, disk"] = tracemalloc.get_traced_memory()[0] - list_bytes
    tracemalloc.stop()
    per_page = {name: value / num_pages for name, value in num_bytes.items()}
    return Row(
        figure="store metadata per page of 64 tokens",
        measured=per_page["device, host, disk"],
        unit="B",
        bound=PAGE_BOUND_BYTES,
        sense="at most",
        judged="measured",
        note=f"{num_pages:,} pages on device, host and disk; on the device alone {per_page['device']:.0f} B; "
        "token ids (256 B), digest and victim orders included",
        raw=per_page,
    )
