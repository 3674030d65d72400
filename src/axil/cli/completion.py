"""`axil completion`: scripts with which bash, zsh and fish complete commands, options and their values.

They are made from the parser itself and hold all words: pressing a key starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

FILES = ("FILE", "MODEL", "FOLDER", "DIRECTORY")  # metavars of what the file system completes


class Parser(argparse.ArgumentParser):
    """A parser that shows what it takes, which argparse's own keeps to itself."""

    about = ""  #: one line on the command

    @property
    def options(self) -> list[argparse.Action]:
        """The options, and arguments that stand by themselves, which have no names."""
        return self._actions


def script(parsers: Mapping[str, Parser], shell: str) -> str:
    """The script for one of `SHELLS`, from the parser of each command."""
    return SHELLS[shell](parsers)


def _value(option: argparse.Action) -> str | None:
    """The name of an option's value; None where it takes none."""
    return None if option.nargs == 0 else str(option.metavar or option.dest)


def _words(option: argparse.Action) -> str:
    """The words that an option takes, where these are known."""
    return " ".join(str(word) for word in option.choices or ())


def _bash(commands: Mapping[str, Parser]) -> str:
    """The words for bash; where there are none it completes the names of files."""
    names = " ".join([*commands, "--help", "--version"])
    values, options = [], []
    for command, one in commands.items():
        for option in one.options:
            places = "|".join(f'"{command} {name}"' for name in option.option_strings or (command,))
            if option.choices:
                values.append(f'        {places}) words="{_words(option)}" ;;')
            elif _value(option) and option.option_strings:
                values.append(f"        {places}) return ;;")
        own = " ".join(name for option in one.options for name in option.option_strings)
        options.append(f'        "{command} -"*) words="{own}" ;;')
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


def _zsh(commands: Mapping[str, Parser]) -> str:
    described = [
        f"        {_quoted(f'{command}:{one.about}')}" for command, one in commands.items()
    ]
    cases = []
    for command, one in commands.items():
        specs = [_spec(option) for option in one.options]
        cases.append(f"        {command}) _arguments {' '.join(specs)} ;;")
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


def _spec(option: argparse.Action) -> str:
    """An option as zsh's _arguments takes it."""
    about, value = option.help or "", _value(option)
    for sign in "\\[]:":
        about = about.replace(sign, f"\\{sign}")
    words = f"({_words(option)})" if option.choices else "_files" if value in FILES else " "
    taken = "" if value is None else f":{value.replace(':', ' ')}:{words}"
    if not option.option_strings:
        return _quoted(taken)
    return " ".join(_quoted(f"*{name}[{about}]{taken}") for name in option.option_strings)


def _fish(commands: Mapping[str, Parser]) -> str:
    lines = ["# Completes axil in fish. Load it with:  axil completion fish | source"]
    for command, one in commands.items():
        lines.append(
            f"complete -c axil -f -n __fish_use_subcommand -a {command} -d {_quoted(one.about)}"
        )
        where = _quoted(f"__fish_seen_subcommand_from {command}")
        for option in one.options:
            words = f" -a {_quoted(_words(option))}" if option.choices else ""
            value, named = _value(option), option.option_strings
            if named:
                takes = "" if value is None else " -r -F" if value in FILES else f" -x{words}"
            else:
                takes = " -F" if value in FILES else f" -f{words}"
            names = "".join(
                f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in named
            )
            lines.append(
                f"complete -c axil -n {where}{names}{takes} -d {_quoted(option.help or '')}"
            )
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """Text between single quotes, for all three shells."""
    return "'" + " ".join(text.split()).replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[Mapping[str, Parser]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
