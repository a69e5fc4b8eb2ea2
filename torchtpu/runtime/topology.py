"""What device this is: name, memory, properties."""

from __future__ import annotations

from dataclasses import dataclass

from torchtpu.runtime import client


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of the device behind `tpu:0`.

    total_memory: bytes of device memory the allocator may use, 0 where PJRT does not say.
    """

    name: str
    platform: str
    platform_version: str
    total_memory: int
    num_cores: int
    coords: tuple[int, ...] | None
    process_index: int


def device_name() -> str:
    """E.g. "TPU v5e"; on another platform the name says so."""
    device = client.device()
    if client.platform() == "tpu":
        return device.device_kind
    return f"{device.device_kind} (PJRT platform: {client.platform()}, not a TPU)"


def device_properties() -> DeviceProperties:
    """Properties of this process's device."""
    device = client.device()
    stats = memory_stats()
    coords = getattr(device, "coords", None)
    return DeviceProperties(
        name=device_name(),
        platform=client.platform(),
        platform_version=device.client.platform_version,
        total_memory=int(stats.get("bytes_limit", 0)),
        num_cores=int(getattr(device, "num_cores", None) or 1),
        coords=tuple(coords) if coords is not None else None,
        process_index=device.process_index,
    )


def memory_stats() -> dict[str, int]:
    """The allocator's statistics in bytes, as PJRT reports them; empty where it reports none."""
    return dict(client.device().memory_stats() or {})
