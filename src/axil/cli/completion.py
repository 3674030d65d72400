"""`axil completion`: scripts with which bash, zsh and fish complete commands, options and values.

They are made from the parsers and hold all words: pressing a key starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

FILE_NAMES = ("FILE", "MODEL", "FOLDER", "DIRECTORY")  # metavars that the file system completes

BASH = """\
# Completes axil in bash. Load it with:  source <(axil completion bash)
_axil() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""
    COMPREPLY=()
    case "${COMP_WORDS[1]} $before" in
%(values)s
    esac
    [ -n "$words" ] || case "${COMP_WORDS[1]} $current" in
%(options)s
    esac
    [ "$COMP_CWORD" -gt 1 ] || words="%(names)s"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o bashdefault -o default -F _axil axil
"""
ZSH = """\
#compdef axil
# Completes axil in zsh. Load it with:  source <(axil completion zsh)
_axil() {
    local -a commands
    commands=(
%(commands)s
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
%(cases)s
    esac
}
if [ "$funcstack[1]" = "_axil" ]; then _axil "$@"; else compdef _axil axil; fi
"""


class CommandParser(argparse.ArgumentParser):
    """A parser that lists its options, which argparse's own keeps to itself."""

    summary = ""  #: one line on the command

    @property
    def options(self) -> list[argparse.Action]:
        """Return the options, and positional arguments, which have no names."""
        return self._actions

    @property
    def option_names(self) -> list[str]:
        """Return the names of all options."""
        return [name for option in self.options for name in option.option_strings]


Parsers = Mapping[str, CommandParser]  #: of the commands, by name


def _value_name(option: argparse.Action) -> str | None:
    """Return the name of an option's value; None if it takes none."""
    if option.nargs == 0:
        return None
    return str(option.metavar or option.dest)


def _choices(option: argparse.Action) -> str:
    """Return the words that an option accepts; empty if it accepts any."""
    return " ".join(str(word) for word in option.choices or ())


def _bash(parsers: Parsers) -> str:
    """Return the script for bash, which completes file names if it has no words."""
    values = []
    options = []
    for command, parser in parsers.items():
        for option in parser.options:
            names = option.option_strings or (command,)
            patterns = "|".join(f'"{command} {name}"' for name in names)
            if option.choices:
                values.append(f'        {patterns}) words="{_choices(option)}" ;;')
            elif _value_name(option) and option.option_strings:
                values.append(f"        {patterns}) return ;;")
        options.append(f'        "{command} -"*) words="{" ".join(parser.option_names)}" ;;')
    names = " ".join([*parsers, "--help", "--version"])
    return BASH % {"values": "\n".join(values), "options": "\n".join(options), "names": names}


def _zsh(parsers: Parsers) -> str:
    """Return the script for zsh."""
    commands = []
    cases = []
    for command, parser in parsers.items():
        commands.append(f"        {_quoted(f'{command}:{parser.summary}')}")
        arguments = " ".join(_zsh_arguments(option) for option in parser.options)
        cases.append(f"        {command}) _arguments {arguments} ;;")
    return ZSH % {"commands": "\n".join(commands), "cases": "\n".join(cases)}


def _zsh_arguments(option: argparse.Action) -> str:
    """Return an option as zsh's _arguments takes it."""
    value = _value_name(option)
    argument = ""
    if value is not None:
        completion = " "
        if option.choices:
            completion = f"({_choices(option)})"
        elif value in FILE_NAMES:
            completion = "_files"
        argument = f":{value.replace(':', ' ')}:{completion}"
    if not option.option_strings:
        return _quoted(argument)
    help = option.help or ""
    for sign in "\\[]:":
        help = help.replace(sign, f"\\{sign}")
    return " ".join(_quoted(f"*{name}[{help}]{argument}") for name in option.option_strings)


def _fish(parsers: Parsers) -> str:
    """Return the script for fish."""
    lines = ["# Completes axil in fish. Load it with:  axil completion fish | source"]
    for command, parser in parsers.items():
        lines.append(
            f"complete -c axil -f -n __fish_use_subcommand -a {command} -d "
            f"{_quoted(parser.summary)}"
        )
        condition = _quoted(f"__fish_seen_subcommand_from {command}")
        for option in parser.options:
            names = ""
            for name in option.option_strings:
                if name.startswith("--"):
                    names += f" -l {name[2:]}"
                else:
                    names += f" -s {name[1:]}"
            description = _quoted(option.help or "")
            lines.append(
                f"complete -c axil -n {condition}{names}{_fish_value(option)} -d {description}"
            )
    return "\n".join([*lines, ""])


def _fish_value(option: argparse.Action) -> str:
    """Return how fish completes the value of an option."""
    value = _value_name(option)
    if option.choices:
        words = f" -a {_quoted(_choices(option))}"
    else:
        words = ""
    if not option.option_strings:
        if value in FILE_NAMES:
            return " -F"
        return f" -f{words}"
    if value is None:
        return ""
    if value in FILE_NAMES:
        return " -r -F"
    return f" -x{words}"


def _quoted(text: str) -> str:
    """Return text between single quotes, for all three shells."""
    return "'" + " ".join(text.split()).replace("'", "'\\''") + "'"


SCRIPTS: dict[str, Callable[[Parsers], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
