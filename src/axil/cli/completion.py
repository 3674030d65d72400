"""`axil completion`: scripts with which bash, zsh and fish complete commands, options and their values.

They are made from the parser itself and hold all words: pressing a key starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FILES = ("FILE", "MODEL", "FOLDER", "DIRECTORY")  # metavars of what the file system completes


@dataclass(frozen=True)
class Option:
    """An option, or with no names an argument that stands by itself."""

    names: tuple[str, ...]
    about: str
    values: tuple[str, ...]  #: the words that it takes, where these are known
    value: str | None  #: what its value is called; None where it takes none

    @property
    def takes_file(self) -> bool:
        return self.value in FILES


@dataclass(frozen=True)
class Command:
    """A command with its options."""

    name: str
    about: str
    options: tuple[Option, ...]


class Parser(argparse.ArgumentParser):
    """A parser that shows what it takes, which argparse's own keeps to itself."""

    about = ""  #: one line on the command

    def described(self, name: str) -> Command:
        """The command that this parses; options that its help leaves out are no part of it."""
        actions = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return Command(name, self.about, tuple(_option(action) for action in actions))


def script(parsers: Mapping[str, Parser], shell: str) -> str:
    """The script for one of `SHELLS`, from the parser of each command."""
    return SHELLS[shell]([one.described(name) for name, one in parsers.items()])


def _option(action: argparse.Action) -> Option:
    values = tuple(str(word) for word in action.choices or ())
    value = None if action.nargs == 0 else str(action.metavar or action.dest)
    return Option(tuple(action.option_strings), action.help or "", values, value)


def _bash(commands: list[Command]) -> str:
    """The words for bash; where there are none it completes the names of files."""
    names = " ".join([*(one.name for one in commands), "--help", "--version"])
    values, options = [], []
    for one in commands:
        for option in one.options:
            places = "|".join(f'"{one.name} {name}"' for name in option.names or (one.name,))
            if option.values:
                values.append(f'        {places}) words="{" ".join(option.values)}" ;;')
            elif option.value and option.names:
                values.append(f"        {places}) return ;;")
        own = " ".join(name for option in one.options for name in option.names)
        options.append(f'        "{one.name} -"*) words="{own}" ;;')
    return "\n".join(
        [
            "# Completes axil in bash. Load it with:  source <(axil completion bash)",
            "_axil() {",
            '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            "    COMPREPLY=()",
            '    case "${COMP_WORDS[1]} $before" in',
            *values,
            "    esac",
            '    [ -n "$words" ] || case "${COMP_WORDS[1]} $current" in',
            *options,
            "    esac",
            f'    [ "$COMP_CWORD" -gt 1 ] || words="{names}"',
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o bashdefault -o default -F _axil axil",
            "",
        ]
    )


def _zsh(commands: list[Command]) -> str:
    described = [f"        {_quoted(f'{one.name}:{one.about}')}" for one in commands]
    cases = []
    for one in commands:
        specs = [_spec(option) for option in one.options]
        cases.append(f"        {one.name}) _arguments {' '.join(specs)} ;;")
    return "\n".join(
        [
            "#compdef axil",
            "# Completes axil in zsh. Load it with:  source <(axil completion zsh)",
            "_axil() {",
            "    local -a commands",
            "    commands=(",
            *described,
            "    )",
            "    if (( CURRENT == 2 )); then",
            "        _describe command commands",
            "        return",
            "    fi",
            "    local command=$words[2]",
            "    shift words",
            "    (( CURRENT-- ))",
            "    case $command in",
            *cases,
            "    esac",
            "}",
            'if [ "$funcstack[1]" = "_axil" ]; then _axil "$@"; else compdef _axil axil; fi',
            "",
        ]
    )


def _spec(option: Option) -> str:
    """An option as zsh's _arguments takes it."""
    about = option.about.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    words = f"({' '.join(option.values)})" if option.values else "_files" if option.takes_file else " "
    value = "" if option.value is None else f":{option.value.replace(':', ' ')}:{words}"
    if not option.names:
        return _quoted(value)
    return " ".join(_quoted(f"*{name}[{about}]{value}") for name in option.names)


def _fish(commands: list[Command]) -> str:
    lines = ["# Completes axil in fish. Load it with:  axil completion fish | source"]
    for one in commands:
        first = f"complete -c axil -f -n __fish_use_subcommand -a {one.name} -d {_quoted(one.about)}"
        lines.append(first)
        for option in one.options:
            words = f" -a {_quoted(' '.join(option.values))}" if option.values else ""
            takes = "" if option.value is None else " -r -F" if option.takes_file else f" -x{words}"
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.names)
            if not option.names:
                takes = " -F" if option.takes_file else f" -f{words}"
            where = _quoted(f"__fish_seen_subcommand_from {one.name}")
            lines.append(f"complete -c axil -n {where}{names}{takes} -d {_quoted(option.about)}")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """Text between single quotes, for all three shells."""
    return "'" + " ".join(text.split()).replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
