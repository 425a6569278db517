"""``--open``: a page in the system's browser, where there is one."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

from ._console import Console


def open_page(path: Path, console: Console) -> bool:
    """Open a page in the browser, or say where it is; return whether a browser has taken it."""
    opened = _opened(path.absolute().as_uri())
    if not opened:
        console.note(f"no browser could be opened here; the page is {path.absolute()}.")
    return opened


def _opened(address: str) -> bool:
    # A browser that the user names is the one, whatever it is.
    chosen = bool(os.environ.get("BROWSER"))
    screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    # From far away the page would open on a screen that nobody sits at.
    if os.environ.get("SSH_CONNECTION") and not screen and not chosen:
        return False
    try:
        browser = webbrowser.get()
        # Without a display only browsers for the terminal are found, which cannot run the scripts of the page and
        # would take the terminal.
        in_terminal = type(browser) is webbrowser.GenericBrowser
        return bool((chosen or not in_terminal) and browser.open(address))
    except (webbrowser.Error, OSError):
        return False
