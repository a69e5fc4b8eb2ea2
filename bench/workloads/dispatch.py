"""What one eager operator costs: x = x + y on small float32 matrices, call after call.

The first side is PyTorch on the device, the second the bare call that the device object offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.options import option
from bench.workloads.base import Comparison, ComparisonWorkload, Side

RATIO = "dispatch_overhead_ratio"


@dataclass(frozen=True)
class DispatchOptions:
    """See conf/workload/dispatch.yaml."""

    size: int = option(at_least=1)
    blocks: int = option(at_least=1)
    # x counts the calls: float32 counts exactly up to here.
    calls_per_block: int = option(at_least=1, at_most=2**24)


class Dispatch(ComparisonWorkload):
    """x starts at 0 and y is 1, so the result of a block is the number of its calls."""

    Options = DispatchOptions

    def load(self) -> None:
        import torch  # noqa: F401

    def comparison(self, device: Any) -> Comparison:
        o = self.options
        sides = [self._torch_side(device)]
        notes = []
        bare = device.bare_call("add")
        if bare is None:
            notes.append(f"{device.name} has no bare call to compare with: no {RATIO}")
        else:
            sides.append(self._bare_side(bare))
        return Comparison(
            sides, o.blocks, o.calls_per_block, RATIO, expected=o.calls_per_block, notes=notes
        )

    def _torch_side(self, device: Any) -> Side:
        import torch

        shape = (self.options.size, self.options.size)
        zero = torch.zeros(shape).to(device.torch_device)
        one = torch.ones(shape).to(device.torch_device)

        def block(calls: int) -> list[Any]:
            x, y = zero, one
            for _ in range(calls):
                x = x + y
            return [x]

        # The last element of the last result: it is right only if every call happened.
        return Side("eager", block, device.wait, lambda out: float(out[0].cpu()[-1, -1]))

    def _bare_side(self, bare: Any) -> Side:
        shape = (self.options.size, self.options.size)
        zero, one, call = bare.put(0.0, shape), bare.put(1.0, shape), bare.call

        def block(calls: int) -> list[Any]:
            x, y = zero, one
            for _ in range(calls):
                x = call(x, y)
            return [x]

        return Side("bare", block, bare.wait, lambda out: bare.read(out[0]))
