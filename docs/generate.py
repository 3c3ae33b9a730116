"""The parts of the reference that are made from the code, so that they cannot disagree with it.

    page.md:  <!-- generated: options -->  ──[conf.py, while Sphinx reads it]──►  Markdown from GENERATED

Nothing is written to disk and nothing is downloaded. Cost: about what `import torch` takes, because the
models, strategies and collectives are imported to read their options.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import paceline
from paceline import cli, errors, registry
from paceline.config import RunConfig
from paceline.config.study import StudyConfig

_MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def expand(text: str) -> str:
    """A page with every mark replaced by what it names."""
    return _MARK.sub(lambda mark: GENERATED[mark[1]](), text)


def options() -> str:
    """Every command: its explanation, its options by group."""
    return "\n\n".join(block for command in cli.commands() for block in _command(command))


def run_keys() -> str:
    """The keys of a run."""
    return _keys(RunConfig)


def study_keys() -> str:
    """The keys of a study."""
    return _keys(StudyConfig)


def error_classes() -> str:
    """Every class of errors.py with its exit code."""
    rows = [
        (f"{'· ' * depth}`{kind.__name__}`", str(kind.exit_code), _first_line(kind))
        for depth, kind in _family(errors.PacelineError)
    ]
    return _table(("class", "exit code", "meaning"), rows)


def strategies() -> str:
    """One row a strategy, with what it says of itself."""
    return _variants(registry.STRATEGIES, needs=_needs)


def collectives() -> str:
    """One row a collective."""
    return _variants(registry.COLLECTIVES)


def data_sets() -> str:
    """One row a data set, with the shape and the sizes it declares."""
    rows = []
    for name in registry.DATA_SETS.names():
        made = registry.DATA_SETS.make(name)
        shape = "×".join(map(str, made.shape))
        sizes = f"{made.train_size:,} + {made.test_size:,}"
        rows.append((f"`{name}`", shape, str(made.classes), sizes, _taken(registry.DATA_SETS.load(name))))
    return _table(("name", "shape", "classes", "train + test", "options and their defaults"), rows)


def models() -> str:
    """A section a model: its layers, its cost, its options."""
    blocks = []
    for name in registry.MODELS.names():
        factory = registry.MODELS.load(name)
        text = inspect.getdoc(importlib.import_module(factory.__module__))
        blocks += [f"### {name}", f"```text\n{text}\n```", f"Options: {_taken(factory)}."]
    return "\n\n".join(blocks)


def library() -> str:
    """Every public name of the package: what it is, and what can be done with it."""
    names = [name for name in paceline.__all__ if name[0] != "_"]
    return "\n\n".join(block for name in names for block in _public(name, getattr(paceline, name)))


GENERATED: Mapping[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        options,
        run_keys,
        study_keys,
        error_classes,
        strategies,
        collectives,
        data_sets,
        models,
        library,
    )
}


def _public(name: str, thing: object) -> Iterator[str]:
    """A function with its signature; a class with its public methods."""
    yield f"## pl.{name}"
    if not inspect.isclass(thing):
        yield f"```python\npl.{name}{_signature(thing)}\n```"
    yield inspect.getdoc(thing) or ""
    for method, function in vars(thing).items() if inspect.isclass(thing) else ():
        shown = method[0] != "_" or method == "__call__"
        if inspect.isfunction(function) and shown:
            yield f"### {name}.{method}\n\n```python\n{method}{_signature(function)}\n```"
            yield inspect.getdoc(function) or ""


def _signature(function: typing.Any) -> str:
    """Without `self` and the types, which the defaults mostly tell."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    shown = str(inspect.Signature(parameters))
    return re.sub(r"<function (\w+) at \w+>", r"\1", shown)


def _command(name: str) -> Iterator[str]:
    module = cli.load(name)
    parser = cli.Parser(prog=f"paceline {name}", description=module.__doc__)
    module.add_arguments(parser)
    yield f"## {parser.prog}"
    yield inspect.cleandoc(module.__doc__ or "")
    yield from _groups(parser)


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table for each group of arguments; an action with a parser of its own is a section."""
    actions: list[argparse.ArgumentParser] = []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                actions += action.choices.values()
            elif not isinstance(action, argparse._HelpAction):
                rows.append((_spelling(action), (action.help or "").replace("%%", "%")))
        if rows:
            yield _table((group.title or "", ""), rows)
    for each in actions:
        yield f"### {each.prog}"
        yield (each.description or "").capitalize() + "."
        yield from _groups(each)


def _spelling(action: argparse.Action) -> str:
    """How an argument is written: `--ranks N`, `DIR…`."""
    value = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}") or ""
    words = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.nargs in ("+", "*"):
        words += " …"
    if not action.option_strings:
        return f"`{words or action.dest}`"
    takes_value = action.nargs != 0
    return ", ".join(f"`{flag} {words}`" if takes_value else f"`{flag}`" for flag in action.option_strings)


def _keys(record: type) -> str:
    hints = typing.get_type_hints(record)
    groups: dict[str, list[Sequence[str]]] = {}
    for field in dataclasses.fields(record):
        row = (f"`{field.name}`", _kind(hints[field.name]), _default(field), field.metadata["help"])
        groups.setdefault(field.metadata["group"], []).append(row)
    return "\n\n".join(_table((title, "type", "default", "meaning"), rows) for title, rows in groups.items())


def _kind(hint: object) -> str:
    names = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    if isinstance(hint, types.UnionType):
        return _kind(next(each for each in typing.get_args(hint) if each is not type(None)))
    if typing.get_origin(hint) is tuple:
        return f"list, each {_kind(typing.get_args(hint)[0])}"
    return names.get(hint, "table")  # type: ignore[call-overload]


def _default(field: dataclasses.Field[object]) -> str:
    value = field.default
    if value is None or value is dataclasses.MISSING or value in ("", ()):
        return "–"
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    return f"`{value}`".lower() if isinstance(value, bool) else f"`{value}`"


def _needs(strategy: typing.Any) -> str:
    """How many ranks, on how many machines, over which collectives."""
    said = [f"at least {strategy.least_ranks} ranks"] if strategy.least_ranks > 1 else []
    said += [f"at most {strategy.most_ranks} rank"] if strategy.most_ranks else []
    said += ["one machine"] if strategy.single_node else []
    said += [f"collective `{name}`" for name in strategy.collectives or ()]
    return ", ".join(said) or "–"


def _variants(kind: registry.Registry, **more: Callable[[typing.Any], str]) -> str:
    """`more`: further columns, by name."""
    rows = []
    for name in kind.names():
        factory = kind.load(name)
        text = inspect.getdoc(importlib.import_module(factory.__module__)) or ""
        first = " ".join(text.partition("\n\n")[0].split()).removeprefix(f"{name}: ")
        rows.append((f"`{name}`", first, *(said(factory) for said in more.values()), _taken(factory)))
    return _table(("name", "", *more, "options and their defaults"), rows)


def _taken(factory: Callable[..., object]) -> str:
    """A variant's options are the keyword-only parameters of its constructor."""
    parameters = inspect.signature(factory).parameters
    return ", ".join(f"`{n}={parameters[n].default}`" for n in registry.option_hints(factory)) or "none"


def _family(kind: type[errors.PacelineError], depth: int = 0) -> Iterator[tuple[int, type]]:
    yield depth, kind
    for child in kind.__subclasses__():
        yield from _family(child, depth + 1)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell would end it."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
