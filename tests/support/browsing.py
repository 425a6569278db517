"""A report in a browser, and what a reader does with it: for tests with the fixture ``browser``."""

import base64
import io
import json
import time

import matplotlib.image

WIDE, NARROW = (1440, 1000), (390, 844)


class Page:
    """A report in the browser, and what a reader does with it. One that is open already is not read again."""

    def __init__(self, driver, path, size=WIDE, dark=False, address="#mcpc=1&context=1&other=2"):
        self.driver, self.opened = driver, path.as_uri() + address
        width, height = size
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        for kind in ("browser", "performance"):
            driver.get_log(kind)
        if driver.current_url.partition("#")[0] != path.as_uri() or dark:
            driver.get("about:blank")
            driver.get(self.opened)
        else:
            self.run("location.hash = arguments[0]", address)
        # Until the page has read the address, whatever it took from it.
        self.wait(lambda: self.run("return mcpca.address.current() === location.hash"))
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "yes")

    def wait(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def wait_for_width(self, width):
        """Wait until nothing has to be scrolled sideways: charts follow the window a little later."""
        self.wait(lambda: self.run("return document.documentElement.scrollWidth") <= width)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def send(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def address(self):
        """What is kept in the address: keys and values. What is typed comes there a little later."""
        return self.run("return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")

    def text(self, selector):
        return self.find(selector).text

    def set(self, selector, value):
        """Choose an option or type into a field."""
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "for (const type of ['input', 'change']) e.dispatchEvent(new Event(type, {bubbles: true}))",
            selector,
            str(value),
        )

    def click_cell(self, row, column):
        """Click the middle of a cell of the map, by its place there."""
        x, y = self.run(
            "const v = mcpca.map.view, b = document.querySelector('#heatmap canvas').getBoundingClientRect();"
            "return [b.left + (arguments[1] + 0.5) * v.columnWidth, b.top + (arguments[0] + 0.5) * v.rowHeight]",
            row,
            column,
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys):
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def table(self, section, number=0):
        """Rows of a table as shown, without its head; all of them."""
        self.run(
            "const t = document.querySelectorAll(arguments[0] + ' .table')[arguments[1]];"
            "t.querySelector('details').open = true; const more = t.querySelector('.more');"
            "if (!more.hidden && more.textContent.startsWith('Show all')) more.click()",
            section,
            number,
        )
        return self.run(
            "return [...document.querySelectorAll(arguments[0] + ' .table')[arguments[1]].querySelectorAll('tbody tr')]"
            ".map(tr => [...tr.children].map(c => c.textContent))",
            section,
            number,
        )

    def chart(self, name):
        """The traces that Plotly drew."""
        self.run("document.getElementById(arguments[0]).scrollIntoView({block: 'center'})", f"chart-{name}")
        script = "const c = document.getElementById(arguments[0]);"
        self.wait(lambda: self.run(script + "return mcpca.painted(c)", f"chart-{name}"))
        return self.run(script + "return JSON.parse(JSON.stringify(c.data))", f"chart-{name}")

    def messages(self):
        """What the console says, violations of the policy among it."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses that were asked for."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        found = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url.partition("#")[0] for url in found if not url.startswith(("data:", "about:", "blob:"))]

    def picture(self, path=None):
        """The window as an array (height, width, 3), kept as a file where a path is given."""
        content = base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(content)
        return matplotlib.image.imread(io.BytesIO(content))[..., :3]
