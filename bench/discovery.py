"""Find the class behind a name: a workload, device or meter is one Python file, in no list."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import TypeVar

from bench.options import UsageError

T = TypeVar("T")


def find_class(package: str, name: str, base: type[T]) -> type[T]:
    """The one subclass of `base` that the module `package.name` defines.

    Raises UsageError if there is no such module, or if it does not define exactly one.
    """
    module_name = f"{package}.{name}"
    if not name.isidentifier() or importlib.util.find_spec(module_name) is None:
        raise UsageError(f"{name}: configured, but there is no module {module_name}")
    module = importlib.import_module(module_name)
    found = [
        item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, base)
        and item.__module__ == module_name
        and not inspect.isabstract(item)
    ]
    if len(found) != 1:
        raise UsageError(f"{module_name}: defines {len(found)} {base.__name__} classes, not one")
    return found[0]
