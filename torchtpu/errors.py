"""The errors torchtpu raises on purpose. All derive from RuntimeError, as PyTorch's own device errors do."""


class TpuError(RuntimeError):
    """Base of all torchtpu errors."""


class ConfigError(TpuError, ValueError):
    """An environment variable or setting has a value that cannot be used."""


class PlatformError(TpuError):
    """The device could not be set up: no PJRT platform, or PrivateUse1 is already taken."""


class LoweringError(TpuError):
    """An operator was lowered wrongly or registered wrongly; this is a bug in torchtpu."""


class FallbackError(TpuError, NotImplementedError):
    """An operator has no lowering and the CPU fallback is switched off or cannot be used here."""


class NanError(TpuError):
    """Debug eager found a NaN in the result of an operator."""
