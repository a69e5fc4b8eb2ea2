"""The random generator of the device: a counter-based state that lives on the device.

The state is uint32[4] (seed high, seed low, counter high, counter low). Each random operator takes
a key of its own from it, so results depend only on the seed and on how many random operators ran.
"""

from __future__ import annotations

import numpy as np
import torch

from torchtpu.runtime import client


class GeneratorState:
    """Seed and counter; the array is made on the device at first use."""

    def __init__(self, seed: int = 0):
        self._seed = seed & (2**64 - 1)
        self._array = None

    @property
    def initial_seed(self) -> int:
        return self._seed

    @property
    def array(self):
        """The state as a device array, uint32[4]."""
        if self._array is None:
            self._array = client.from_numpy(
                np.array([self._seed >> 32, self._seed & 0xFFFFFFFF, 0, 0], np.uint32)
            )
        return self._array

    @array.setter
    def array(self, value) -> None:
        self._array = value

    def manual_seed(self, seed: int) -> None:
        self._seed = int(seed) & (2**64 - 1)
        self._array = None

    def get_state(self) -> torch.Tensor:
        """The state as a uint8[16] CPU tensor."""
        return torch.from_numpy(np.array(self.array)).view(torch.uint8).clone()

    def set_state(self, state: torch.Tensor) -> None:
        """Restore what get_state returned. Raises ValueError for anything else."""
        if state.dtype != torch.uint8 or state.numel() != 16:
            raise ValueError(
                "a tpu random state is a uint8 tensor with 16 elements, as torch.tpu.get_rng_state() "
                f"returns; got {state.dtype} with {state.numel()} elements"
            )
        words = state.cpu().contiguous().view(torch.uint8).numpy().copy().view(np.uint32)
        self._seed = (int(words[0]) << 32) | int(words[1])
        self._array = client.from_numpy(words)


default_generator = GeneratorState(seed=torch.initial_seed())


def state_from_generator(generator: torch.Generator):
    """A one-off state, uint32[4], drawn from a CPU generator that the user passed to an operator."""
    words = torch.randint(0, 2**32, (2,), generator=generator, dtype=torch.int64).numpy()
    return client.from_numpy(np.array([words[0], words[1], 0, 0], np.uint32))
