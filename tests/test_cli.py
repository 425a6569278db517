"""The command line finds its commands and says what there is."""

import subprocess
import sys

import pytest

import mcpca
from mcpca.cli import main


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: mcpca COMMAND [options]" in out
    assert "  demo " in out
    assert "  benchmark " in out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mcpca {mcpca.__version__}\n"


def test_nothing_and_unknown_commands_end_with_2(capsys):
    assert main([]) == 2
    assert "usage: mcpca" in capsys.readouterr().err
    assert main(["fit"]) == 2
    assert "mcpca: 'fit' is unknown; choose one of demo, benchmark." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "benchmark"])
def test_commands_have_help_of_their_own(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: mcpca {command} ")
    assert "--output" in out


def test_the_command_imports_no_more_than_it_needs():
    program = "import sys; from mcpca.cli import main; main(['--version']); print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "False"
