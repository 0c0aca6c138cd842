"""A gated delta layer: convolution, recurrent state, gated norm. Knows nothing about where its weights come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.kernels.causal_conv import CausalConv
from ninfer.kernels.delta_chunks import delta_chunks
from ninfer.kernels.delta_rows import delta_rows
from ninfer.kernels.delta_step import delta_step
from ninfer.kernels.gated_norm import GatedNorm
from ninfer.kernels.l2_norm import L2Norm
from ninfer.kernels.linear import Linear
from ninfer.kernels.segment import Segment
from ninfer.models.hybrid_config import DeltaNetConfig
from ninfer.models.state_plan import StatePlan, SteppedRows, slot_of, store
from ninfer.models.step import Step

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler
    from ninfer.kernels.compiled.delta_layer import DeltaLayer


@dataclass(frozen=True, slots=True)
class DeltaNetWeights:
    """Operators of one layer; tensors in the dtype of the states.

    Attributes:
        input: outputs are queries, keys, values (which go through the convolution), gates, beta, decay.
        conv: of queries, keys and values.
        decay_bias: added to the decay outputs, `[num_value_heads]`.
        decay_rate: `-exp(A_log)`, `[num_value_heads]`.
        norm: of the heads that come out.
        output: from value heads to the residual stream.
    """

    input: Linear
    conv: CausalConv
    decay_bias: Tensor
    decay_rate: Tensor
    norm: GatedNorm
    output: Linear


class DeltaNet:
    """A `Mixer` whose memory has a fixed size."""

    def __init__(self, index: int, config: DeltaNetConfig, weights: DeltaNetWeights) -> None:
        """Keep the operators.

        Args:
            index: layer of the state pool.
            config: shapes.
            weights: operators.
        """
        self._index = index
        self._config = config
        self._weights = weights
        heads, values = config.num_key_heads, config.num_value_heads
        self._parts = [config.conv_width, config.values_width, values, values]
        self._conv_parts = [2 * config.keys_width, config.values_width]
        rate = weights.decay_rate
        scales = torch.ones(2 * heads, 1, dtype=rate.dtype, device=rate.device)
        scales[:heads] = config.key_dim**-0.5
        self._normalise = L2Norm(scales)
        self._compiled: DeltaLayer | None = None

    def compile(self, compiler: "Compiler") -> None:
        """Compute everything between the projections with a compiled function from now on.

        Raises:
            Exception: numba cannot compile; of any type.
        """
        from ninfer.kernels.compiled.delta_layer import (  # noqa: PLC0415 - needs an extra
            DeltaLayer,
            DeltaTensors,
        )

        weights, norm = self._weights, self._weights.norm.norm
        self._compiled = DeltaLayer(
            DeltaTensors(
                weights.conv.weight, weights.decay_bias, weights.decay_rate, norm.weight, norm.eps
            ),
            key_heads=self._config.num_key_heads,
            key_dim=self._config.key_dim,
            compiler=compiler,
        )

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """See `Mixer`. Changes the state slots of the rows in this layer."""
        plan = step.require_states()
        weights, config = self._weights, self._config
        projected = weights.input(x).to(plan.states.layout.dtype)
        if self._compiled is not None:
            heads = self._compiled(projected, plan.table, plan.states, self._index)
            return weights.output(heads.to(x.dtype))
        mixed, gate, beta, decay = torch.split_with_sizes(projected, self._parts, dim=-1)
        # In place, so that rows stay apart: softplus rounds differently where vectors cross the border of two rows.
        log_decay = functional.softplus(decay.add_(weights.decay_bias)).mul_(weights.decay_rate)
        rows = _Rows(mixed, log_decay, beta.sigmoid())
        if plan.stepped is not None and not plan.chunked and plan.stepped.is_in_order:
            heads = self._stepped(plan, plan.stepped, rows).flatten(0, 1)
        else:
            heads = mixed.new_empty(len(x), config.num_value_heads, config.value_dim)
            if plan.stepped is not None:
                plan.stepped.put(self._stepped(plan, plan.stepped, rows), heads)
            for segment in plan.chunked:
                self._chunked(plan, segment, rows, heads)
        return weights.output(weights.norm(heads, gate).to(x.dtype))

    def _stepped(self, plan: StatePlan, stepped: SteppedRows, rows: "_Rows") -> Tensor:
        """Compute short segments; returns `[num_lanes, longest, num_value_heads, value_dim]`."""
        num_lanes, longest = stepped.shape
        windows = plan.states.windows(self._index)
        slots = plan.states.recurrent(self._index)
        chosen = rows.mixed[stepped.rows].view(num_lanes, longest, -1)
        convolved, seen = self._weights.conv(windows[stepped.slots], chosen)
        heads, values = self._heads(convolved)
        decay = rows.log_decay[stepped.rows].exp().view(num_lanes, longest, -1)
        beta = rows.beta[stepped.rows].view(num_lanes, longest, -1)
        # A view where slots are evenly spaced; then the states of single rows are updated where they are.
        states = slots[stepped.slots]
        if not stepped.are_plain:
            outputs, after = delta_rows(states, heads, values, decay=decay, beta=beta)
            window_rows = windows.shape[1]
            stepped.keep(slots, after)
            stepped.keep(windows, seen.unfold(1, window_rows, 1)[:, 1:].permute(1, 0, 3, 2))
            return outputs
        output = delta_step(
            states,
            heads.squeeze(1),
            values.squeeze(1),
            decay=decay.squeeze(1),
            beta=beta.squeeze(1),
        )
        store(windows, stepped.slots, seen[:, 1:])
        if not isinstance(stepped.slots, slice):
            store(slots, stepped.slots, states)
        return output.unsqueeze(1)

    def _chunked(self, plan: StatePlan, segment: Segment, rows: "_Rows", heads_out: Tensor) -> None:
        """Compute a long segment into its rows of `heads_out`."""
        slot, bounds = (
            slot_of(segment),
            slice(segment.row_start, segment.row_start + segment.num_rows),
        )
        window = plan.states.windows(self._index)[slot : slot + 1]
        convolved, seen = self._weights.conv(window, rows.mixed[bounds].unsqueeze(0))
        window.copy_(seen[:, segment.num_rows :])
        heads, values = self._heads(convolved)
        heads_out[bounds] = delta_chunks(
            plan.states.recurrent(self._index)[slot],
            heads[0],
            values[0],
            log_decay=rows.log_decay[bounds],
            beta=rows.beta[bounds],
        )

    def _heads(self, convolved: Tensor) -> tuple[Tensor, Tensor]:
        """Cut `[num_lanes, num_rows, conv_width]` into normalised queries and keys, and values.

        Returns:
            `[num_lanes, num_rows, 2, num_key_heads, key_dim]` and `[num_lanes, num_rows, num_value_heads, value_dim]`.
        """
        config = self._config
        num_lanes, num_rows, _ = convolved.shape
        heads, values = torch.split_with_sizes(convolved, self._conv_parts, dim=-1)
        heads = self._normalise(
            heads.view(num_lanes, num_rows, 2 * config.num_key_heads, config.key_dim)
        )
        return (
            heads.view(num_lanes, num_rows, 2, config.num_key_heads, config.key_dim),
            values.view(num_lanes, num_rows, config.num_value_heads, config.value_dim),
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the recurrence reads, one row per batch row."""

    mixed: Tensor
    log_decay: Tensor
    beta: Tensor
