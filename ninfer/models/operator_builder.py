"""Makes norms and linear layers in the types and with the kernels of a model. Knows nothing about tensor names."""

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.rms_norm import RmsNorm
from ninfer.kernels.weight import Weight
from ninfer.models.build_options import BuildOptions
from ninfer.models.config import ModelConfig

if TYPE_CHECKING:
    from ninfer.kernels.compiled.panels import PanelFormat


class OperatorBuilder:
    """Turns tensors into operators. Thread-safe: keeps nothing between calls."""

    def __init__(self, config: ModelConfig, options: BuildOptions) -> None:
        """Remember what all operators share."""
        self._config = config
        self._options = options

    def norm(self, weight: Tensor) -> RmsNorm:
        """Make a norm of hidden states or heads."""
        options = self._options
        if self._config.centred_norms:
            weight = 1 + weight.to(options.state_dtype)
        weight = weight.to(options.device, options.activation_dtype)
        return RmsNorm(weight, self._config.rms_norm_eps)

    def linear(
        self, weight: Weight, bias: Tensor | None = None, *, policy: LinearPolicy | None = None
    ) -> Linear:
        """Make a linear layer; with the model's kernels unless others are named."""
        options = self._options
        if options.device.type != "cpu":
            weight = Weight(weight.dense.to(options.device))
        if bias is not None:
            bias = bias.to(options.device, options.activation_dtype)
        return Linear(weight, bias, policy=policy or options.policy, dtype=options.dtype)

    def precise(self, weight: Weight) -> Linear:
        """Make a linear layer that is never packed into few bits: for scores that decide."""
        return self.linear(weight, policy=LinearPolicy(many=self._options.policy.many))

    def output(self, weight: Weight) -> Linear:
        """Make the output projection: with 8 bits where others have 4; compiled steps need no other form.

        With 4 bits, SmolLM2 agreed with float32 on 87.5 % of first choices instead of 97.1 %.
        """
        policy = self._options.policy
        if policy.compiled is not None:
            form: PanelFormat = "int8" if policy.compiled == "int4" else policy.compiled
            return self.linear(weight, policy=LinearPolicy(many=None, compiled=form))
        if policy.few == "int4":
            policy = replace(policy, few="int8")
        return self.linear(weight, policy=policy)

    def state_tensor(self, tensor: Tensor) -> Tensor:
        """Put a tensor that works on states where and in the type they are."""
        return tensor.to(self._options.device, self._options.state_dtype)
