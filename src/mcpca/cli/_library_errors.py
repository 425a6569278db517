"""Errors of the library as errors about the file, or the option, that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..exceptions import NoStableRankError, NothingAboveNoiseError, RankExceedsDataError
from ._words import in_words_of_the_command
from .tables import UnusableFileError
from .tables._errors import UselessOptionError

_NOTHING_VARIES = "The covariances are all zero"  # how the library begins to say so
# What the library says of options rather than of data: formulas that are none, bounds, what a model was fitted without.
_WRONG_OPTION = re.compile(
    r"^--covariates '.*' (is not a formula|has |leaves |names no )|^--\S+ \S+ is out of bounds|"
    "model was fitted without "
)


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn errors of the library about its data into errors about the file they came from."""
    try:
        yield
    # These have exit codes of their own (``_errors``) and are not about one file.
    except (NothingAboveNoiseError, NoStableRankError, UnusableFileError):
        raise
    except OSError as error:
        if "checkpoint=" in str(error):  # about a file that is written, not read
            raise
        told = in_words_of_the_command(error.strerror or str(error))
        raise UnusableFileError(path, f"could not be read to its end ({told}).") from error
    except ValueError as error:
        # ValueError is how the library speaks about its data; anything else is a bug and passes.
        text = in_words_of_the_command(str(error))
        # A rank beyond the data is a wrong option, but no rank fits data that do not vary.
        if isinstance(error, RankExceedsDataError) and _NOTHING_VARIES not in text:
            raise
        if _WRONG_OPTION.search(text):
            raise UselessOptionError(path, text) from error
        raise UnusableFileError(path, text + _way_out(text)) from error


def _way_out(text: str) -> str:
    """Return what to do about contexts that are too small, to follow a message of the library."""
    small = re.search(r"(\d+) of (\d+) contexts have fewer than 2 rows: ", text)
    if not small:
        return ""
    if small[1] == small[2]:
        return " None has two: are these all rows, and is it the column of contexts?"
    return " --min-samples 2 leaves them out."
