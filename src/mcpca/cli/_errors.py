"""Every way a command can end, with its exit code; no traceback unless it is asked for."""

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
from ._console import Failure, ReaderGoneError, to_json
from .tables import UnusableFileError

_BROKEN_PIPE, _INTERRUPTED, _TERMINATED = 141, 130, 143


class _Terminated(BaseException):
    """SIGTERM, as something that lets files be put in order on the way out."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code after one line on stderr where it failed."""
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals that lack a letter
    try:
        with _terminable():
            # ``obj`` is for the record of the run: what was typed.
            code = app.main(args=list(arguments), prog_name="mcpca", standalone_mode=False, obj=list(arguments))
            sys.stdout.flush()
        return int(code or 0)
    except (ReaderGoneError, BrokenPipeError):
        # Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return _end(Failure("interrupted; nothing is half written.", _INTERRUPTED, "interrupted"), arguments)
    except _Terminated:
        return _end(Failure("terminated; nothing is half written.", _TERMINATED, "terminated"), arguments)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _end(_failure_of(error), arguments)


def _failure_of(error: Exception) -> Failure:
    """Return an error with its exit code and in words that go with the command line."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.ClickException):
        where = f" See: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        return Failure(error.format_message().rstrip(".") + "." + where, 2, "usage")
    if isinstance(error, NothingAboveNoiseError):
        return Failure(f"{getattr(error.selection, 'reason', error)} Pass --rank R to fit one all the same.", 4, "rank")
    if isinstance(error, NoStableRankError):
        return Failure(f"{getattr(error.choice, 'reason', error)} Pass --rank R to fit one all the same.", 4, "rank")
    if isinstance(error, RankExceedsDataError):
        return Failure(str(error), 2, "usage")
    if isinstance(error, UnusableFileError):
        return Failure(str(error), 3, "input")
    if isinstance(error, ImportError):
        return Failure(str(error), 2, "usage")
    if isinstance(error, MemoryError):
        return Failure(f"out of memory ({error}); lower --max-memory, or take fewer features.", 1, "memory")
    if isinstance(error, OSError):
        return Failure(f"{error.filename or 'a file'}: {error.strerror or error}.", 5, "output")
    return Failure(f"{type(error).__name__}: {error} (a fault of mcpca; --debug shows where)", 1, "internal")


def _end(failure: Failure, arguments: Sequence[str]) -> int:
    message = " ".join(str(failure).split())
    try:
        print(f"mcpca: {message}", file=sys.stderr, flush=True)
        if "--json" in arguments:
            error = {"exit_code": failure.code, "kind": failure.kind, "message": message}
            print(to_json({"ok": False, "error": error, **failure.content}), flush=True)
    except OSError:  # nobody can be told
        pass
    return failure.code


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
