#!/usr/bin/env python3
"""Compiles shaders with Tint, the WGSL compiler of Chromium, and prints one line a shader.

usage: tint.py [--timeout SECONDS] [--browser PROGRAM] SHADERS.json

SHADERS.json (`-`: standard input) is what the example `dump_shaders` prints: a list of
{"name", "variant", "wgsl", "subgroups", "storage_buffers", "constants": {name: number}}.

Tint is stricter than naga: it proves control flow uniform at barriers and at subgroup operations, for instance.
Each shader becomes a module and a compute pipeline on a headless browser's software device with WebGPU's default
limits; one that says it has more storage buffers than those allow (a cache in several windows), on a second device with
as many as it says. Exits 0 only if at least one shader was checked, all were accepted, and the broken ones sent first were not.
"""

import argparse
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]

# The device is SwiftShader, so that the check needs no GPU and is the same on every machine.
WEBGPU_FLAGS = [
    "--headless",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--use-vulkan=swiftshader",
]
# A container has no user namespaces for the sandbox and often a tiny /dev/shm. The only page opened is the one below.
CONTAINER_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
# Nothing but the loopback is to be talked to.
QUIET_FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-quic",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
]


def buffers(count):
    """A shader that binds so many storage buffers."""
    declarations = (f"@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;" for i in range(count))
    uses = (f"b{i}[0] = 1u;" for i in range(count))
    return "\n".join(declarations) + "\n@compute @workgroup_size(1)\nfn main() { " + " ".join(uses) + " }"


# A gate that cannot fail is none: these must be rejected, each by the stage that it is meant for.
BROKEN = [
    {
        "name": "self-check: barrier in non-uniform control flow",
        "wgsl": """@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    if (lane < 3u) { workgroupBarrier(); }
}""",
        "stage": "module",
    },
    {
        "name": "self-check: nine storage buffers",
        "wgsl": buffers(9),
        "stage": "pipeline",
    },
    {
        "name": "self-check: ten storage buffers that say nine",
        "wgsl": buffers(10),
        "storage_buffers": 9,
        "stage": "pipeline",
    },
]

PAGE = """<!doctype html><meta charset="utf-8"><title>hotrow shaders</title><script type="module">
const post = (path, value) => fetch(path, { method: "POST", body: JSON.stringify(value) });

async function check(device, shader) {
    // No line is added in front, so that the numbers in messages are those of the shader.
    const code = shader.subgroups ? "enable subgroups; " + shader.wgsl : shader.wgsl;
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ label: shader.name, code });
    const info = await module.getCompilationInfo();
    const moduleError = await device.popErrorScope();
    const lines = code.split("\\n");
    const messages = info.messages.map((m) => ({
        type: m.type,
        text: `${m.lineNum}:${m.linePos} ${m.message}` + (m.lineNum ? "\\n    " + (lines[m.lineNum - 1] ?? "").trim().slice(0, 120) : ""),
    }));
    const errors = messages.filter((m) => m.type === "error").map((m) => m.text);
    if (moduleError && errors.length === 0) errors.push(moduleError.message);
    const result = { messages: messages.filter((m) => m.type !== "error").map((m) => m.text), errors, stage: "module" };
    if (errors.length > 0) return result;
    // Limits, override values and what only the back end finds show when the pipeline is made.
    result.stage = "pipeline";
    device.pushErrorScope("validation");
    try {
        await device.createComputePipelineAsync({
            label: shader.name,
            layout: "auto",
            compute: { module, entryPoint: "main", constants: shader.constants ?? {} },
        });
    } catch (error) {
        errors.push(error.message);
    }
    const scope = await device.popErrorScope();
    if (scope && errors.length === 0) errors.push(scope.message);
    return result;
}

async function main() {
    if (!navigator.gpu) throw new Error("this browser has no WebGPU");
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter) throw new Error("no WebGPU adapter");
    const subgroups = adapter.features.has("subgroups");
    const requiredFeatures = subgroups ? ["subgroups"] : [];
    let lost = null;
    async function open(requiredLimits) {
        // An adapter gives one device.
        const device = await (await navigator.gpu.requestAdapter()).requestDevice({ requiredFeatures, requiredLimits });
        device.lost.then((info) => { lost = info.message || info.reason; });
        return device;
    }
    // Nothing is asked of the limits: the shaders must stay within WebGPU's defaults ...
    const device = await open({});
    // ... but for those that say how many storage buffers more they have, each on a device of just as many.
    const wider = new Map();
    async function deviceOf(shader) {
        const wanted = shader.storage_buffers ?? 0;
        if (wanted <= device.limits.maxStorageBuffersPerShaderStage) return device;
        if (wanted > adapter.limits.maxStorageBuffersPerShaderStage) return null;
        if (!wider.has(wanted)) wider.set(wanted, await open({ maxStorageBuffersPerShaderStage: wanted }));
        return wider.get(wanted);
    }
    const { vendor, architecture, description } = adapter.info;
    await post("/adapter", { info: [vendor, architecture, description].filter(Boolean).join(" "), subgroups });
    const shaders = await (await fetch("/shaders.json")).json();
    for (const [index, shader] of shaders.entries()) {
        const lacking = (what) => ({ messages: [], errors: [`the browser's adapter has no ${what}: not checked`], stage: "adapter" });
        const on = await deviceOf(shader);
        const result = shader.subgroups && !subgroups ? lacking("subgroups")
            : on === null ? lacking(`${shader.storage_buffers} storage buffers`)
            : await check(on, shader);
        if (lost !== null) throw new Error(`device lost at ${shader.name}: ${lost}`);
        await post("/result", { index, ...result });
    }
}
main().then(() => post("/done", {}), (error) => post("/failed", { text: String(error) }));
</script>"""


def serve(shaders, reports):
    """Serves the page and the shaders on a free port of the loopback; what the page posts goes to `reports`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, kind, body):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/":
                self.answer("text/html; charset=utf-8", PAGE.encode())
            elif self.path == "/shaders.json":
                self.answer("application/json", json.dumps(shaders).encode())
            else:
                self.send_error(404)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reports.put((self.path, json.loads(body)))
            self.answer("text/plain", b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def listen(shaders, reports, browser, timeout):
    """Judges the page's reports until it is done. Returns (shaders accepted, complaints)."""
    deadline = time.monotonic() + timeout
    accepted, complaints, seen = 0, [], 0
    while True:
        try:
            path, report = reports.get(timeout=0.5)
        except queue.Empty:
            where = f"after {seen} of {len(shaders)} shaders" + (
                f", at {label(shaders[seen])}" if 0 < seen < len(shaders) else ""
            )
            if browser.poll() is not None:
                return accepted, complaints + [f"the browser ended with status {browser.returncode} {where}"]
            if time.monotonic() > deadline:
                return accepted, complaints + [f"no answer within {timeout:.0f} s {where}"]
            continue
        if path == "/adapter":
            print(f"tint: adapter {report['info'] or '(unnamed)'}, subgroups {'yes' if report['subgroups'] else 'no'}")
        elif path == "/result":
            shader = shaders[report["index"]]
            name, errors, stage = label(shader), report["errors"], report["stage"]
            seen += 1
            if "stage" in shader:
                if errors and stage == shader["stage"]:
                    print(f"tint: rejected, as it must be  {name}")
                else:
                    complaints.append(f"{name}: not rejected by the {shader['stage']} stage {errors}")
            elif errors:
                print(f"tint: REJECTED  {name} ({stage})")
                complaints += [f"{name}: {error}" for error in errors]
            else:
                accepted += 1
                print(f"tint: ok  {name}")
            if "stage" not in shader:
                for message in report["messages"]:
                    print(f"      note {message}")
        elif path == "/failed":
            return accepted, complaints + [report["text"]]
        elif path == "/done":
            if seen != len(shaders):
                complaints.append(f"{seen} of {len(shaders)} shaders came back")
            return accepted, complaints


def label(shader):
    return f"{shader['name']}/{shader['variant']}" if shader.get("variant") else shader["name"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--timeout", type=float, default=240, help="seconds for all shaders together")
    parser.add_argument("--browser", help="a Chromium; default: the first on the path")
    parser.add_argument("shaders", metavar="SHADERS.json")
    options = parser.parse_args()

    wanted = [options.browser] if options.browser else BROWSERS
    program = next(filter(None, map(shutil.which, wanted)), None)
    if program is None:
        sys.exit(f"tint: no browser found (looked for {', '.join(wanted)})")
    with sys.stdin if options.shaders == "-" else open(options.shaders, encoding="utf-8") as file:
        shaders = json.load(file)
    if not shaders:
        sys.exit("tint: no shaders to check")

    reports = queue.Queue()
    server = serve(BROKEN + shaders, reports)
    with tempfile.TemporaryDirectory(prefix="hotrow-tint-", ignore_cleanup_errors=True) as folder:
        log = os.path.join(folder, "browser.log")
        with open(log, "wb") as output:
            browser = subprocess.Popen(
                [program, *WEBGPU_FLAGS, *CONTAINER_FLAGS, *QUIET_FLAGS]
                + [f"--user-data-dir={folder}/profile", f"http://127.0.0.1:{server.server_port}/"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that its helper processes can be ended with it
            )
            try:
                accepted, complaints = listen(BROKEN + shaders, reports, browser, options.timeout)
            finally:
                try:
                    os.killpg(browser.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                browser.wait()
        server.shutdown()
        if complaints and accepted == 0:
            with open(log, encoding="utf-8", errors="replace") as file:
                sys.stderr.writelines(f"browser: {line}" for line in file.readlines()[-20:])

    for complaint in complaints:
        print(f"tint: {complaint}", file=sys.stderr)
    if complaints:
        sys.exit(f"tint: {len(complaints)} complaints, {accepted} of {len(shaders)} shaders accepted")
    print(f"tint: {accepted} shaders accepted")


if __name__ == "__main__":
    main()
