"""ATen operators as pure functions on JAX arrays; one file for each family.

Importing this package imports every family, and so fills the registry. A new family is a new file:
nothing else needs to be edited.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
