"""What a report holds, read back from its text: the data, and the elements that a browser would see."""

import base64
import json
from html.parser import HTMLParser

import numpy as np


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.attributes, self._script = [], [], [], None

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag == "script":
            self._script = dict(attrs)
            self.scripts.append((dict(attrs), []))

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[-1][1].append(data)


def elements(page):
    """Tags, (tag, attribute, value) and (attributes, text) of scripts, as a parser of HTML finds them."""
    found = _Elements()
    found.feed(page)
    found.close()
    return found.tags, found.attributes, [(attributes, "".join(text)) for attributes, text in found.scripts]


def content(page):
    """The data of the page."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])


def unpacked(matrix):
    """Undo ``packed``."""
    integers = np.frombuffer(base64.b64decode(matrix["data"]), dtype="<i2")
    return integers.reshape(-1, len(matrix["scales"])) * np.array(matrix["scales"], dtype=float)
