"""Every way in which a command can end, with its exit code: one line on stderr, and no traceback unless asked for.

``run_command_line`` is called by ``cli.main`` and calls the click group of ``_app``. Exit codes are listed in
``cli.main`` and in ``docs/cli.md``.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from ..exceptions import NoStableRankError, NothingAboveNoiseError, RankExceedsDataError
from ._app import app
from ._console import Failure, ReaderGoneError, json_text
from ._words import in_words_of_the_command
from .tables import UnusableFileError, stdin
from .tables._errors import UselessOptionError

# What a shell gives a program that a signal has ended: 128 + SIGPIPE, SIGINT, SIGTERM.
_BROKEN_PIPE = 141
_INTERRUPTED = 130
_TERMINATED = 143
_FIT_ANYWAY = "Pass --rank R to fit one all the same."


class _Terminated(BaseException):
    """SIGTERM as an exception, so that ``finally`` blocks remove temporary files on the way out."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; a failure is one line on stderr."""
    # Looked for by hand: errors of parsing the options have to obey it as well.
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of contexts may have letters the terminal lacks
    try:
        with _terminable():
            # ``obj`` is what was typed, for the record of the run.
            code = app.main(args=list(arguments), prog_name="mcpca", standalone_mode=False, obj=list(arguments))
            sys.stdout.flush()
        return int(code or 0)
    except (ReaderGoneError, BrokenPipeError):
        # Python would fail once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return _end(Failure("interrupted; nothing is left half written.", _INTERRUPTED, "interrupted"), arguments)
    except _Terminated:
        return _end(Failure("terminated; nothing is left half written.", _TERMINATED, "terminated"), arguments)
    # Not BaseException: SystemExit is somebody's decision and passes.
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _end(_failure_of(error), arguments)


def _failure_of(error: Exception) -> Failure:
    """Return an error with its exit code, in words that fit the command line."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.ClickException):
        where = f" See: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        message = in_words_of_the_command(error.format_message()).rstrip(".")
        return Failure(message + ("" if message.endswith("?") else ".") + where, 2, "usage")
    # These two have advice for Python in their message; the reason alone is in what they carry.
    if isinstance(error, NothingAboveNoiseError):
        return Failure(_with_a_way_out(getattr(error.selection, "reason", error)), 4, "rank")
    if isinstance(error, NoStableRankError):
        return Failure(_with_a_way_out(getattr(error.choice, "reason", error)), 4, "rank")
    # The first is one of the second, and says that the option is to blame.
    if isinstance(error, UselessOptionError):
        return Failure(str(error), 2, "usage")
    if isinstance(error, UnusableFileError):
        return Failure(str(error), 3, "input")
    # Named one by one: any other ValueError that comes this far is a bug, and is not blamed on the arguments.
    if isinstance(error, (RankExceedsDataError, ImportError)):
        return Failure(in_words_of_the_command(str(error)), 2, "usage")
    if isinstance(error, MemoryError):
        return Failure(f"out of memory ({error}); lower --max-memory, or take fewer features.", 1, "memory")
    if isinstance(error, OSError):
        # Without the name of a file it is a message of the library, which has that in it.
        told = error.strerror or str(error)
        told = f"{error.filename}: {told}." if error.filename else in_words_of_the_command(told)
        return Failure(told, 5, "output")
    return Failure(f"{type(error).__name__}: {error} (a bug in mcpca; --debug shows where)", 1, "internal")


def _with_a_way_out(reason: object) -> str:
    return f"{in_words_of_the_command(str(reason))} {_FIT_ANYWAY}"


def _end(failure: Failure, arguments: Sequence[str]) -> int:
    """Print a failure, as JSON too if that was asked for; return its exit code."""
    message = stdin.told(" ".join(str(failure).split()))
    try:
        print(f"mcpca: {message}", file=sys.stderr, flush=True)
        if "--json" in arguments:
            error = {"exit_code": failure.code, "kind": failure.kind, "message": message}
            # On stdout, where a program reads the result; the line for people is on stderr already.
            print(json_text({"ok": False, "error": error, **failure.content}), flush=True)
    except OSError:  # stdout or stderr is closed: only the exit code can tell
        pass
    return failure.code


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():  # only that thread may set handlers
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
