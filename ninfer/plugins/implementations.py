"""Checks of hook implementations before they are registered. Calls none of them."""

import difflib
import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import pluggy

from ninfer.api import hookspecs
from ninfer.plugins.record import HOOKS, Phase, PluginProblem

HOOK_PREFIX: Final = "ninfer_"


def check_implementations(manager: pluggy.PluginManager, module: ModuleType) -> list[PluginProblem]:
    """Find what would make pluggy refuse a hook implementation, or quietly do something else than meant.

    Args:
        manager: knows the markers; not changed.
        module: the plugin.

    Returns:
        One problem per mistake, with file and line.
    """
    problems = []
    for name, function in _functions(module):
        options = manager.parse_hookimpl_opts(module, name)
        for message in _mistakes(name, function, options):
            location = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
            problems.append(PluginProblem(phase=Phase.REGISTER, message=message, location=location))
    return problems


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, value in sorted(vars(module).items()):
        if isinstance(value, FunctionType):
            yield name, value


def _mistakes(
    name: str, function: FunctionType, options: pluggy.HookimplOpts | None
) -> Iterator[str]:
    if options is None:
        if name in HOOKS and function.__module__ != hookspecs.__name__:
            yield f"{name} is not marked with @hookimpl, so it would never be called"
        return
    if options["wrapper"] or options["hookwrapper"]:
        yield f"{name} is a wrapper; hooks that register must not wrap those of others"
    if options["specname"]:
        yield f"{name} uses specname={options['specname']!r}; name the function as the hook is named"
        return
    if name not in HOOKS:
        near = difflib.get_close_matches(name, list(HOOKS), n=1, cutoff=0.0)
        yield f"there is no hook {name}; did you mean {near[0]}?"
        return
    yield from _argument_mistakes(name, function)


def _argument_mistakes(name: str, function: FunctionType) -> Iterator[str]:
    known = _parameters(vars(hookspecs)[name])
    for parameter in _parameters(function).values():
        if parameter.default is not inspect.Parameter.empty:
            yield f"{name} has a default for {parameter.name}; pluggy would never pass such an argument"
        elif parameter.name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            yield f"{name} asks for an argument {parameter.name} that the hook does not have; {takes}"


def _parameters(function: Any) -> dict[str, inspect.Parameter]:  # noqa: ANN401 - any callable
    return dict(inspect.signature(function).parameters)
