"""Which TPU chips this host has. Imports neither torch nor JAX."""

from __future__ import annotations

import glob


def tpu_device_files() -> list[str]:
    """Device files through which libtpu reaches TPU chips on this host (empty: no TPU)."""
    return sorted(glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/accel/[0-9]*")) or sorted(
        glob.glob("/dev/vfio/[0-9]*")
    )
