"""Matrix kernels against a float64 product, and the choice between them."""

import pytest
import torch

from ninfer.kernels.linear import Linear, LinearPolicy
from ninfer.kernels.linear_calibration import FEW_ROWS, MANY_ROWS, calibrate, has_half_kernel
from ninfer.kernels.linear_kernels import build_kernel
from ninfer.kernels.weight import Grid4, Weight

SHAPES = [(960, 576), (576, 576), (3072, 576), (576, 1536)]
needs_half = pytest.mark.skipif(not has_half_kernel(), reason="this torch has no FBGEMM")


def bf16_weight(num_outputs, num_inputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(num_outputs, num_inputs, generator=generator) * 0.05
    return dense.bfloat16().float()


def relative_error(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_rows", [1, 3, 8, 40])
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("plain", 4e-3),
        ("upcast", 1e-6),
        pytest.param("half", 1e-6, marks=needs_half),
        ("int8", 1.2e-2),
        ("int4", 1.2e-1),
    ],
)
def test_kernels_stay_within_the_error_of_their_format(name, tolerance, shape, num_rows):
    dense = bf16_weight(*shape)
    x = torch.randn(num_rows, shape[1], generator=torch.Generator().manual_seed(1))
    output = build_kernel(name, Weight(dense), torch.bfloat16)(x)
    assert output.dtype in {torch.float32, torch.bfloat16}
    assert output.shape == (num_rows, shape[0])
    assert relative_error(output, x.double() @ dense.double().t()) < tolerance


def test_a_weight_on_a_4_bit_grid_loses_only_the_rounding_of_scale_and_zero():
    grid = Grid4.nearest(bf16_weight(64, 96))
    exact = grid.codes.view(64, 3, 32) * grid.scale.unsqueeze(2) + grid.minimum.unsqueeze(2)
    x = torch.randn(2, 96, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    output = build_kernel("int4", Weight(exact.flatten(1), grid), torch.bfloat16)(x)
    assert relative_error(output, x.double() @ exact.flatten(1).double().t()) < 5e-3


@needs_half
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="measured with the AVX2 kernels"
)
def test_packed_half_results_do_not_depend_on_the_rows_beside_them():
    kernel = build_kernel("half", Weight(bf16_weight(64, 576)), torch.bfloat16)
    x = torch.randn(400, 576, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([kernel(row) for row in x.split(1)])
    for num_rows in range(1, 400):
        assert torch.equal(kernel(x[:num_rows]), alone[:num_rows]), num_rows


def test_weights_outside_float16_are_not_packed_as_half():
    dense = torch.eye(32) * 1e5
    output = build_kernel("half", Weight(dense), torch.bfloat16)(torch.ones(1, 32))
    assert output.isfinite().all()


@pytest.mark.parametrize("shape", [(24, 32), (32, 48)])
def test_shapes_the_4_bit_kernel_cannot_take_use_8_bits(shape):
    dense = bf16_weight(*shape)
    x = torch.randn(2, shape[1], generator=torch.Generator().manual_seed(1))
    output = build_kernel("int4", Weight(dense), torch.bfloat16)(x)
    assert relative_error(output, x.double() @ dense.double().t()) < 1.2e-2


def test_a_linear_layer_changes_kernels_at_its_threshold():
    dense, bias = bf16_weight(64, 64), torch.ones(64)
    policy = LinearPolicy(few="int8", max_few_rows=2, many="plain")
    linear = Linear(Weight(dense), bias, policy=policy, dtype=torch.bfloat16)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    packed = build_kernel("int8", Weight(dense), torch.bfloat16)
    plain = build_kernel("plain", Weight(dense), torch.bfloat16)
    assert torch.equal(linear(x[:2]), packed(x[:2]) + bias)
    assert torch.equal(linear(x), plain(x) + bias)
    assert linear.weight_bytes == packed.weight_bytes + plain.weight_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_is_never_packed(dtype):
    assert calibrate("int4", 64, 64, dtype=dtype, seconds=lambda: 0.0) == LinearPolicy()


class CostlyKernel:
    """In place of a compiled product: takes what it is told to."""

    def __init__(self, clock, cost):
        self._clock = clock
        self._cost = cost

    def __call__(self, *_args, **_named):
        return self._multiply

    def _multiply(self, x):
        self._clock.now += self._cost(x.shape[0])
        return x


class FakeTime:
    """A clock that advances by the cost of the kernel called since the last reading."""

    def __init__(self, monkeypatch, costs):
        self.now = 0.0

        def build(name, weight, dtype):
            def kernel(x):
                self.now += costs[name](x.shape[0])
                return x

            return kernel

        monkeypatch.setattr("ninfer.kernels.linear_calibration.build_kernel", build)

    def __call__(self):
        return self.now


@needs_half
@pytest.mark.parametrize(
    ("weight_format", "expected"),
    [
        ("plain", LinearPolicy(many="half")),
        ("int4", LinearPolicy(few="int4", max_few_rows=2, many="half")),
    ],
)
def test_calibration_keeps_a_second_format_only_while_it_is_faster(
    monkeypatch, weight_format, expected
):
    costs = {
        "plain": lambda n: 2.0 * n,
        "half": lambda n: 1.0 + n / 8,
        "int4": lambda n: 0.35 * n,
    }
    clock = FakeTime(monkeypatch, costs)
    assert calibrate(weight_format, 64, 64, dtype=torch.bfloat16, seconds=clock) == expected


@needs_half
def test_calibration_prefers_plain_weights_where_bf16_is_fast(monkeypatch):
    costs = {"plain": lambda n: 1.0 + n / 64, "half": lambda n: 0.95 + n / 8}
    clock = FakeTime(monkeypatch, costs)
    policy = calibrate("plain", 64, 64, dtype=torch.bfloat16, seconds=clock)
    assert policy == LinearPolicy(few="half", max_few_rows=0, many="plain")


@needs_half
@pytest.mark.parametrize("weight_format", ["plain", "int4"])
@pytest.mark.parametrize(
    ("cost", "max_rows"),
    [(lambda n: 0.2 * n, 4), (lambda n: 0.01 * n, 8), (lambda n: 5.0 * n, 0)],
)
def test_compiled_steps_take_the_rows_for_which_they_are_as_fast(
    monkeypatch, weight_format, cost, max_rows
):
    pytest.importorskip("numba")
    costs = {
        "plain": lambda n: 2.0 * n,
        "half": lambda n: 1.0,
        "int4": lambda n: 0.8 if n == 1 else 9.0,
    }
    clock = FakeTime(monkeypatch, costs)
    kernel = CostlyKernel(clock, cost)
    monkeypatch.setattr("ninfer.kernels.compiled.panel_kernel.PanelKernel", kernel)
    shape = {"dtype": torch.bfloat16, "seconds": clock}
    policy = calibrate(weight_format, 64, 64, compiler=object(), **shape)
    if max_rows:
        form = {"plain": "bf16"}.get(weight_format, weight_format)
        assert policy == LinearPolicy(many="half", compiled=form, max_compiled_rows=max_rows)
    else:
        assert policy == calibrate(weight_format, 64, 64, **shape)


def test_a_layer_for_compiled_steps_alone_still_multiplies():
    dense = bf16_weight(40, 64)
    linear = Linear(
        Weight(dense), None, policy=LinearPolicy(many=None, compiled="bf16"), dtype=torch.bfloat16
    )
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    assert relative_error(linear(x), x.double() @ dense.double().t()) < 1e-6
    assert linear.weight_bytes == 48 * 64 * 2


def test_calibration_measures_few_and_many_rows():
    assert max(FEW_ROWS) < MANY_ROWS


@pytest.mark.parametrize("num_inputs", [8, 24, 40, 48, 72, 100])
def test_int8_takes_inputs_that_are_no_whole_vectors(num_inputs):
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(24, num_inputs, generator=generator)
    kernel = build_kernel("int8", Weight(dense), torch.bfloat16)
    for num_rows in (1, 3, 4, 8, 17):
        x = torch.randn(num_rows, num_inputs, generator=generator)
        torch.testing.assert_close(kernel(x).float(), x @ dense.t(), rtol=0.05, atol=0.3)
