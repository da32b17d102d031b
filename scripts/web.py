#!/usr/bin/env python3
"""Drives the page of scripts/web in a headless Chromium on SwiftShader, and checks what it says.

usage: web.py FOLDER SCREENSHOT.png

The page must pass its self-test and give a valid file: once with all that the device has; once with WebGPU's default limits and no feature, hidden
for a while, whose figures must be measured again. Two pages must give no file: one whose self-test expects a wrong value, and one that loses its
device. Exits 0 only then.
"""

import base64
import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tint import BROWSERS, CONTAINER_FLAGS, QUIET_FLAGS, WEBGPU_FLAGS

# Seconds for a page.
PATIENCE = 90.0
# Seconds for all pages, after which the browser is ended: one that hangs answers no question.
WHOLE = 300.0


class Refused(Exception):
    """The browser refused a call."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Browser:
    """A Chromium, driven by the DevTools protocol through two pipes."""

    def __init__(self, program, folder):
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        # The browser reads its file 3 and writes its file 4.
        command = ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "bash", program, *WEBGPU_FLAGS, *CONTAINER_FLAGS, *QUIET_FLAGS]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "--window-size=1100,1400", "about:blank"]
        with open(f"{folder}/log", "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(from_us, to_us),
                start_new_session=True,  # so that its helper processes can be ended with it
            )
        os.close(from_us)
        os.close(to_us)
        self.writer = os.fdopen(to_browser, "wb", buffering=0)
        self.reader = os.fdopen(from_browser, "rb", buffering=0)
        self.rest, self.number = b"", 0

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.writer.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                some = self.reader.read(1 << 16)
                if not some:
                    raise SystemExit("web: the browser ended, or gave no answer for too long")
                self.rest += some
            answer, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(answer)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Refused(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, url):
        target = self.call("Target.createTarget", url=url)["targetId"]
        return target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, session, expression):
        try:
            answer = self.call("Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True)
        except Refused:
            return None  # the page is being replaced by the next one, or it has ended
        return answer["result"].get("value")

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


NUMBER = (int, float)
SHAPE = {"schema": int, "command": str, "version": str, "commit": str, "left_out": list, "date": str, "adapter": dict, "machines": list, "self_test": dict, "records": list}
MACHINE = dict.fromkeys(["adapter", "backend", "driver", "timing"], str) | {"software": bool, "binding_bytes": int, "threads": int}
RECORD = {"what": str, "shape": str, "setting": dict, "value": NUMBER, "unit": str}


def wrong(file):
    """What of a report's schema a file breaks."""

    def fields(what, found, shape):
        bad = [name for name, kind in shape.items() if name not in found or not isinstance(found[name], kind)]
        return [f"{what}: wanted another {name}, found {found.get(name)!r}" for name in bad]

    faults = fields("file", file, SHAPE) or fields("machine", (file["machines"] or [{}])[0], MACHINE)
    if faults:
        return faults
    if (file["schema"], file["command"]) != (2, "web page"):
        faults.append(f"schema: {file['schema']} {file['command']}")
    if not isinstance(file["self_test"].get("cases"), int) or not 0 < file["self_test"]["cases"] == file["self_test"].get("passed"):
        faults.append(f"self_test: {file['self_test']}")
    for number, record in enumerate(file["records"]):
        bad = fields(f"record {number}", record, RECORD)
        if not bad and not (0 < record["value"] and 0 <= record["setting"].get("hits", 0) <= 100):
            bad = [f"record {number}: {record}"]
        faults += bad
    faults += [f"left out without a reason: {one}" for one in file["left_out"] if not one.get("why")]
    found = {record.get("what") for record in file["records"]}
    faults += [f"no {wanted}" for wanted in ("random read", "random update", "forward", "forward logical", "step", "copy", "sort, 32 bits") if wanted not in found]
    return faults


def check_of_the_check(file):
    """A check that cannot fail is none."""
    for spoil in (
        lambda f: f.pop("machines"),
        lambda f: f["records"][0].pop("unit"),
        lambda f: f["records"][0].update(value=0),
        lambda f: f["self_test"].update(passed=0),
        lambda f: f.update(records=[record for record in f["records"] if record["shape"] != "sort"]),
        lambda f: f.update(records=[record for record in f["records"] if record["what"] != "random update"]),
        lambda f: f.update(left_out=[{"what": "kernels"}]),
    ):
        spoiled = json.loads(json.dumps(file))
        spoil(spoiled)
        if not wrong(spoiled):
            sys.exit("web: a spoiled file was taken as valid")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    folder, picture = sys.argv[1:]
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"web: no browser found (looked for {', '.join(BROWSERS)})")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotrow-web-", ignore_cleanup_errors=True) as scratch:
        browser = Browser(program, scratch)
        watchdog = threading.Timer(WHOLE, browser.end)
        watchdog.daemon = True
        watchdog.start()
        try:
            drive(browser, f"http://127.0.0.1:{server.server_port}/", picture)
        except SystemExit:
            with open(f"{scratch}/log", encoding="utf-8", errors="replace") as log:
                sys.stderr.writelines(f"browser: {line}" for line in log.readlines()[-10:])
            raise
        finally:
            watchdog.cancel()
            browser.end()
            server.shutdown()
    print(f"web: all pages as they should be, in {time.monotonic() - begun:.0f} s")


def drive(browser, url, picture):
    def visit(query, meanwhile=None):
        """Opens a page and waits until it is done. Returns its phase, its words, its file, its target and the session."""
        target, session = browser.open(f"{url}?{query}")
        return *wait(session, query, meanwhile), target, session

    def rerun(session, query):
        """Has an open page run once more. Returns its phase, its words and its file."""
        start = f"""window.hotrow.asked = new URLSearchParams("{query}"); window.hotrow.file = null; window.hotrow.phase = "again";
            document.getElementById("start").disabled = false; document.getElementById("start").click(); 0"""
        browser.ask(session, start)
        return wait(session, query)

    def wait(session, query, meanwhile=None):
        start = time.monotonic()
        said = None
        while True:
            phase = browser.ask(session, "window.hotrow?.phase")
            words = browser.ask(session, "document.getElementById('say')?.textContent")
            if words != said:
                said = words
                if os.environ.get("HOTROW_WEB_VERBOSE"):
                    print(f"web: {time.monotonic() - start:6.1f} s: {words}", flush=True)
                if meanwhile:
                    meanwhile(session, words)
            if phase in ("done", "failed"):
                break
            if time.monotonic() - start > PATIENCE:
                sys.exit(f"web: {query}: not done within {PATIENCE:.0f} s; the page says: {words}")
            time.sleep(0.02)
        file = browser.ask(session, "window.hotrow.file")
        print(f"web: {query}: {phase} after {time.monotonic() - start:.1f} s: {words}")
        return phase, words, file and json.loads(file)

    def hide(session, words):
        """Hides the page during the first step that it measures, and shows it a moment later."""
        if words.startswith("Measuring: step") and not hidden:
            hidden.append(words)
            browser.ask(
                session,
                """Object.defineProperty(document, "hidden", { configurable: true, get: () => window.away });
                window.away = true; document.dispatchEvent(new Event("visibilitychange"));
                setTimeout(() => { window.away = false; document.dispatchEvent(new Event("visibilitychange")); }, 300); 0""",
            )

    hidden = []
    for query in ("small&start", "small&start&plain&cases=2"):
        phase, words, file, target, session = visit(query, hide if "plain" in query else None)
        faults = [words] if phase != "done" else wrong(file)
        if faults:
            text = browser.ask(session, "document.getElementById('test')?.textContent")
            sys.exit("\n".join(f"web: {query}: {fault}" for fault in [*faults, text]))
        adapter = file["adapter"]
        print(f"web: {adapter['name']}, subgroups {adapter['subgroups']}, timestamps {adapter['timestamps']}, {len(file['records'])} figures")
        check_of_the_check(file)
        if "plain" in query and (adapter["subgroups"] or adapter["timestamps"]):
            sys.exit("web: a plain device has features")
        refused = browser.ask(session, "window.hotrow.page.refusals()")
        mapped, at_once, later, again = refused or [""] * 4
        if "MAPPABLE_PRIMARY_BUFFERS" not in mapped or [at_once, again] != ["no error"] * 2 or not later.startswith("device: "):
            sys.exit(f"web: what must be refused, and the fault that a browser tells late, came out as {refused}")
        print(f"web: told late, and once: {later.split(chr(10))[0]}")
        repeated = browser.ask(session, "window.hotrow.again")
        if "plain" in query and not (hidden and repeated):
            sys.exit("web: a page that was hidden for a while measured nothing again")
        if "plain" in query:
            print(f"web: hidden at '{hidden[0]}': {repeated} measured again")
        if "plain" not in query:
            size = {"x": 0, "y": 0, "width": 1100, "height": browser.ask(session, "document.documentElement.scrollHeight"), "scale": 1}
            shot = browser.call("Page.captureScreenshot", session, format="png", clip=size, captureBeyondViewport=True)
            with open(picture, "wb") as out:
                out.write(base64.b64decode(shot["data"]))
            with open(os.path.splitext(picture)[0] + ".json", "w", encoding="utf-8") as out:
                json.dump(file, out, indent=1)
        if "plain" not in query:
            browser.call("Target.closeTarget", targetId=target)

    phase, words, file = rerun(session, "small&start&plain&spoil&cases=1")
    if phase != "failed" or file or "self-test failed" not in words:
        sys.exit("web: a wrong value in the self-test went unnoticed")
    phase, words, file = rerun(session, "small&start&plain&lose&cases=0")
    if phase != "failed" or file or "lost" not in words:
        sys.exit("web: a lost device went unnoticed")


if __name__ == "__main__":
    main()
