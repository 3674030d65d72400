"""axil completion: words of a command line completed by a shell."""

import shutil

import pytest

from tests.cli.cli_models import shell


def test_completion_in_bash(run, folder):
    """A real bash completes commands, options and values, and leaves files to itself."""
    code, script, _ = run("completion bash")
    assert code == 0
    (folder / "axil.bash").write_text(script)
    asked = {
        "axil wh": "what-if",
        "axil explain --q": "--quiet --query",
        "axil explain m.txt --by ": "weight contribution",
        "axil explain --train ": "",
        "axil completion ": "bash zsh fish",
        "axil without --cs": "",
    }
    lines = ["source axil.bash"]
    for line in asked:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        lines += [
            f"COMP_WORDS=({words})",
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))",
            "_axil",
            'echo "${COMPREPLY[*]}"',
        ]
    done = shell(["bash", "-c", "\n".join(lines)], folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == list(asked.values())


@pytest.mark.parametrize(
    ("name", "begins"), [("zsh", "#compdef axil"), ("fish", "# Completes axil in fish")]
)
def test_completion_in_other_shells(run, folder, name, begins):
    code, script, _ = run(f"completion {name}")
    assert code == 0
    assert script.startswith(begins)
    for word in (
        "what-if",
        "intervals",
        "inverse-func",
        "weight contribution",
        "write all of it here",
    ):
        assert word in script
    if shutil.which(name):
        (folder / f"axil.{name}").write_text(script)
        assert shell([name, "-n", f"axil.{name}"], folder).returncode == 0
