"""A headless Chromium, driven over its debugging port: opens pages, runs JavaScript there, takes pictures, and keeps
what the page complains of. Python's own library is enough."""

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


class Browser:
    """One page of a browser of its own."""

    def __init__(self, width=1280, height=900):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise FileNotFoundError("no Chromium (apt install chromium fonts-dejavu-core)")
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={self.folder}", "--remote-debugging-port=0", f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = os.path.join(self.folder, "DevToolsActivePort")
            wait("the browser starts", lambda: os.path.exists(told) and open(told).read().count("\n"), 60)
            self.port = int(open(told).readline())
            self.version = self.get("version")["Browser"]
            target = next(t for t in self.get("list") if t["type"] == "page")
            self.socket = WebSocket(self.port, target["webSocketDebuggerUrl"].split(str(self.port), 1)[1])
        except BaseException:
            self.close()
            raise
        self.number = 0
        self.complaints = []
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def get(self, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json/{what}", timeout=30) as answer:
            return json.load(answer)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        """Errors of the script, of the console, of loading and of the security policy."""
        kind, about = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            about = about["exceptionDetails"]
            self.complaints.append("exception: " + about.get("exception", {}).get("description", about["text"]))
        elif kind == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append("console: " + str([a.get("value", a.get("description")) for a in about["args"]]))
        elif kind == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append("log: " + about["entry"]["text"] + " " + about["entry"].get("url", ""))

    def open(self, url):
        self.call("Page.navigate", url=url)
        wait("the page loads", lambda: self.run("document.readyState") == "complete", 30)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, script, seconds=60):
        return wait(what, lambda: self.run(script), seconds)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)

    def dark(self, dark):
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class WebSocket:
    """A connection to a browser."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        assert b" 101 " in self.file.readline()
        while self.file.readline().strip():
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = len(data)
        if length < 126:
            size = struct.pack("!B", 0x80 | length)
        elif length < 1 << 16:
            size = struct.pack("!BH", 0x80 | 126, length)
        else:
            size = struct.pack("!BQ", 0x80 | 127, length)
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.socket.sendall(b"\x81" + size + mask + masked)

    def receive(self):
        text = b""
        while True:
            first, second = self.file.read(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", self.file.read(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self.file.read(8))[0]
            data = self.file.read(length)
            if first & 0x0F in (0, 1, 2):
                text += data
                if first & 0x80:
                    return text.decode()


def wait(what, condition, seconds):
    """What the condition gives, as soon as it gives something."""
    until = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > until:
            raise TimeoutError(f"never happened: {what}")
        time.sleep(0.1)
