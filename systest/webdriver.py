# SPDX-License-Identifier: BSD-3-Clause
"""A browser: headless Chromium, driven by chromedriver over the W3C's WebDriver protocol."""
import base64
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from appliance_lib import DEADLINE, Skip, check, wait_for

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
ENDS_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]      # chromedriver ends with the test, Chromium with chromedriver
KEY_TAB, KEY_ENTER = "\ue004", "\ue007"


class Browser:
    """width, height: of the page, in CSS pixels; dark: what the page is told that its reader prefers."""

    def __init__(self, width=1280, height=900, dark=False):
        if not shutil.which("chromedriver") or not shutil.which("chromium"):
            raise Skip("chromium and chromedriver (Debian: chromium-driver) are not installed")
        self.profile, self.session = tempfile.mkdtemp(prefix="varve-browser-"), None
        self.log = open(pathlib.Path(self.profile) / "driver.log", "w+")
        self.binary = pathlib.Path(self.profile) / "chromium"
        self.binary.write_text(f'#!/bin/sh\nexec {" ".join(ENDS_WITH_PARENT)} chromium "$@"\n')
        self.binary.chmod(0o755)
        self.driver = subprocess.Popen([*ENDS_WITH_PARENT, "chromedriver", "--port=0"], stdout=self.log, stderr=self.log,
                                       env={**os.environ, "HOME": self.profile})
        try:
            self.port = wait_for(self.find_port, "chromedriver to start", 2 * DEADLINE)
            self.begin(width, height, dark)
        except BaseException:
            self.close()
            raise

    def find_port(self):
        check(self.driver.poll() is None, "chromedriver has ended")
        found = re.search(r"started successfully on port (\d+)", pathlib.Path(self.log.name).read_text())
        return found and int(found[1])

    def begin(self, width, height, dark):
        options = {"args": FLAGS + [f"--user-data-dir={self.profile}/profile"], "binary": str(self.binary)}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{answer['sessionId']}"
        self.look(width, height, dark)

    def look(self, width, height, dark):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=4 * DEADLINE)
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(c.getresponse().read())["value"]
        c.close()
        check(not (isinstance(answer, dict) and "error" in answer), answer)
        return answer

    def cdp(self, command, **parameters):
        return self.call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.call("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *arguments):
        """What the body of a function returns."""
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, expression, what):
        return wait_for(lambda: self.run(f"return {expression}"), what, 2 * DEADLINE)

    def press(self, key):
        self.call("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def messages(self):
        """What the console had of warnings and errors since the last call."""
        return [m for m in self.call("POST", f"{self.session}/se/log", {"type": "browser"}) if m["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("GET", f"{self.session}/screenshot")))

    def close(self):
        try:
            if self.session:
                self.call("DELETE", self.session)
        except (OSError, ValueError):
            pass
        finally:
            self.driver.kill()
            self.driver.wait()
            self.log.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
