"""PJRT through JAX: client, devices, buffers, events, executables. Knows no ATen operator."""
