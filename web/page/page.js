// The page around the wasm: it asks for one check and one figure after the other, and shows them.
// Parameters of the address: `small` (small sizes), `cases` (of the self-test), `start` (at once), `plain` (WebGPU's default limits, no feature), `spoil` (one expected
// value of the self-test is wrong), `lose` (the device is lost between the figures).
import init, { Page } from "./hotrow_web.js";

const asked = new URLSearchParams(location.search);
const [small, plain] = [asked.has("small"), asked.has("plain")];
const at = (id) => document.getElementById(id);
// What the test of the page looks at, and changes.
const state = (window.hotrow = { asked, phase: "loading", file: null, again: 0, left_out: [] });

function say(text, kind = "") {
    at("say").textContent = text;
    at("say").className = kind;
}

function fail(text) {
    state.phase = "failed";
    say(text, "bad");
}

function table(rows, numbers = true) {
    const body = document.createElement("table");
    for (const cells of rows) {
        const line = body.insertRow();
        for (const cell of cells) {
            const place = line.insertCell();
            if (cell instanceof Node) place.append(cell);
            else place.textContent = cell;
            if (numbers && /^[\d.,]+( |$)/.test(String(cell))) place.className = "number";
        }
    }
    return body;
}

// A curve for each precision: [{ name, points: [[x, y]] }], x from 0 to 1.
const COLOURS = ["#2563c9", "#d9822b", "#2e8b57", "#a23bb5", "#c23b4e"];
function plot(curves) {
    const [w, h, left, right, top, bottom] = [420, 260, 52, 22, 10, 52];
    const most = Math.max(1e-9, ...curves.flatMap((curve) => curve.points.map(([, y]) => y)));
    const unit = 10 ** Math.floor(Math.log10(most));
    const step = [0.2, 0.5, 1, 2].map((k) => k * unit).find((size) => most / size <= 6) ?? 5 * unit;
    const end = Math.ceil(most / step) * step;
    const X = (x) => left + x * (w - left - right);
    const Y = (y) => h - bottom - (y / end) * (h - top - bottom);
    const out = [];
    for (let y = 0; y <= end * 1.001; y += step) {
        out.push(`<line class="grid" x1="${left}" x2="${w - right}" y1="${Y(y)}" y2="${Y(y)}"/>`);
        out.push(`<text x="${left - 6}" y="${Y(y) + 4}" text-anchor="end">${Number(y.toPrecision(3))}</text>`);
    }
    for (const x of [0, 0.25, 0.5, 0.75, 1]) {
        out.push(`<text x="${X(x)}" y="${h - bottom + 16}" text-anchor="middle">${x * 100} %</text>`);
    }
    curves.forEach(({ name, points }, i) => {
        const colour = COLOURS[i % COLOURS.length];
        const sorted = [...points].sort((a, b) => a[0] - b[0]);
        out.push(`<polyline fill="none" stroke-width="2" stroke="${colour}" points="${sorted.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ")}"/>`);
        for (const [x, y] of sorted) out.push(`<circle r="3" fill="${colour}" cx="${X(x)}" cy="${Y(y)}"/>`);
        out.push(`<rect x="${left + i * 74}" y="${h - 18}" width="10" height="10" rx="2" fill="${colour}"/>`);
        out.push(`<text x="${left + i * 74 + 15}" y="${h - 9}">${name}</text>`);
    });
    return `<svg viewBox="0 0 ${w} ${h}" role="img">${out.join("")}</svg>`;
}

const time = (s) => (s < 1e-3 ? `${(s * 1e6).toFixed(1)} µs` : `${(s * 1e3).toFixed(2)} ms`);

function show(records) {
    const of = (what) => records.filter((one) => one.what === what);
    for (const measure of ["forward", "backward"]) {
        const curves = new Map();
        for (const { setting, value } of of(`${measure} logical`)) {
            if (!curves.has(setting.precision)) curves.set(setting.precision, { name: setting.precision, points: [] });
            curves.get(setting.precision).points.push([setting.hits / 100, value / 1e9]);
        }
        if (curves.size > 0) at(measure).innerHTML = plot([...curves.values()]);
    }
    const fastest = Math.max(...of("rate").filter((one) => one.shape === "copy").map((one) => one.value));
    const rows = [...new Set(of("random read").map((one) => one.setting["row bytes"]))];
    if (rows.length > 0) {
        const lines = [["table", ...rows.map((row) => `${row} B`)]];
        for (const what of ["random read", "random update"]) {
            for (const size of new Set(of(what).map((one) => one.setting["table MiB"]))) {
                const here = of(what).filter((one) => one.setting["table MiB"] === size);
                lines.push([`${what.slice(7)}, ${size} MiB`, ...here.map(({ value }) => `${(value / 1e9).toFixed(2)} (${(100 * value / fastest).toPrecision(2)} %)`)]);
            }
        }
        at("random").replaceChildren(table(lines));
    }
    if (state.left_out.length > 0) at("left").replaceChildren(table(state.left_out.map(({ what, why }) => [what, why])));
    const copies = of("copy").map(({ setting, value }) => {
        return [`copy of ${(setting.bytes / 2 ** 20).toFixed(0)} MiB of random words`, time(value), `${(2 * setting.bytes / value / 1e9).toFixed(2)} GB/s`];
    });
    const sorts = of("sort, 32 bits").map(({ setting, value }) => {
        return [`sort of ${setting.pairs.toLocaleString("en")} pairs`, time(value), `${(setting.pairs / value / 1e6).toFixed(1)} million keys/s`];
    });
    if (copies.length + sorts.length > 0) at("plain").replaceChildren(table([...copies, ...sorts]));
    const kernels = of("time").sort((a, b) => b.value - a.value);
    if (kernels.length > 0) {
        const longest = kernels[0].value;
        at("kernels").replaceChildren(table(kernels.map(({ setting, value }) => {
            const cell = document.createElement("span");
            cell.className = "cell";
            cell.style.width = `${(100 * value) / longest}px`;
            return [setting.kernel, time(value), cell];
        })));
    } else if (state.left_out.length > 0) at("kernels").textContent = "not measured: see the list below";
}

// Adapters that compute on the processor's cores. WebGPU does not tell them apart.
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render/i;

const visible = () => new Promise((resolve) => {
    if (!document.hidden) return resolve();
    document.addEventListener("visibilitychange", function seen() {
        if (document.hidden) return;
        document.removeEventListener("visibilitychange", seen);
        resolve();
    });
});
let hidden = 0; // how often the page was hidden
document.addEventListener("visibilitychange", () => { hidden += document.hidden; });

// Browsers slow a hidden page down, so what was measured meanwhile does not count.
async function measure(page, index) {
    for (let tries = 0; tries < 5; tries += 1) {
        if (document.hidden) say("This page is hidden, so the measurement waits.");
        await visible();
        const before = hidden;
        const found = JSON.parse(await page.measure(small, index));
        if (hidden === before && !document.hidden) return found;
        state.again += 1;
    }
    return null;
}

const told = () => new Promise((resolve) => setTimeout(resolve)); // lets the browser draw

async function run(page, adapter, device) {
    at("start").disabled = true;
    state.phase = "running";
    state.left_out = [];
    const plan = JSON.parse(page.plan(small));
    const cases = Number(state.asked.get("cases") ?? (small ? 6 : 30));
    const records = [];
    const total = cases + plan.length;
    const advance = (n) => { at("done").style.width = `${(100 * n) / total}%`; };
    const differences = [];
    for (let seed = 0; seed < cases; seed += 1) {
        say(`Self-test: ${seed + 1} of ${cases}`);
        await told();
        const found = await page.check(seed, state.asked.has("spoil") && seed === 0);
        if (page.fault()) return fail(`${page.fault().replace(/\.*$/, "")}. Reload the page.`);
        if (found.includes(": ")) differences.push(found);
        advance(seed + 1);
    }
    state.self_test = { cases, passed: cases - differences.length };
    at("test").textContent = `${cases - differences.length} of ${cases} random tables agree with the CPU.`;
    at("test").className = differences.length === 0 ? "good" : "bad";
    if (differences.length > 0) {
        at("test").append(table(differences.map((one) => [one])));
        return fail("The self-test failed, so nothing is measured. Please report the difference below with the name of your GPU.");
    }
    for (const [index, one] of plan.entries()) {
        say(`Measuring: ${one.measure}${one.mib ? `, ${one.mib} MiB` : ""}${one.precision ? `, ${one.precision}` : ""}${one.hit_rate == null ? "" : `, about ${one.hit_rate * 100} % hits`}`);
        await told();
        if (state.asked.has("lose") && index === 1) page.lose();
        let found;
        try {
            found = await measure(page, index);
        } catch (error) {
            // A device that was lost has no more figures; what it gave before stays.
            return fail(`Stopped: ${String(error.message ?? error).replace(/\.*$/, "")}. What was measured before is shown. Reload the page to begin anew.`);
        }
        if (found === null) state.left_out.push({ what: JSON.stringify(one), why: "the page was hidden" });
        else for (const one of found) (one.why ? state.left_out : records).push(one);
        show(records);
        advance(cases + index + 1);
    }
    // As `hotrow bench` writes it.
    const file = {
        schema: 2,
        command: "web page",
        version: device.version,
        commit: device.commit,
        date: new Date().toISOString(),
        size: small ? "small" : "full",
        machines: [{
            adapter: adapter.name,
            backend: device.backend,
            driver: navigator.userAgent,
            software: device.software || SOFTWARE.test(Object.values(adapter).join(" ")),
            timing: "the browser's clock around batches of 10 ms; kernels by device timestamps",
            subgroup: device.subgroup_sizes,
            binding_bytes: device.limits.binding_bytes,
            threads: 1,
        }],
        adapter: { ...adapter, subgroups: device.subgroups, timestamps: device.timestamps, limits: device.limits },
        shapes: { page: device.shapes[small ? "small" : "full"], random: "each row once a pass, in random order; an update's bytes count twice" },
        self_test: state.self_test,
        left_out: state.left_out,
        plain,
        records,
    };
    state.file = JSON.stringify(file, null, 1);
    state.phase = "done";
    at("save").disabled = false;
    at("save").onclick = () => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([state.file], { type: "application/json" }));
        link.download = "hotrow-web.json";
        link.click();
    };
    const missing = state.left_out.length > 0 ? ` ${state.left_out.length} figures are left out; the list below says why.` : "";
    say(`Done.${missing} Save the result; the command “hotrow bench compare” reads it.`, "good");
}

async function open() {
    if (!window.isSecureContext) return fail("WebGPU needs a secure page: open this one over https, or from localhost.");
    if (!navigator.gpu) return fail("This browser has no WebGPU. Take a current Chrome, Edge, Safari or Firefox, or switch WebGPU on in its settings.");
    const found = await navigator.gpu.requestAdapter();
    if (!found) return fail("This browser has WebGPU, but finds no GPU for it. Update the graphics driver, or switch hardware acceleration on.");
    const { vendor = "", architecture = "", device: model = "", description = "" } = found.info ?? {};
    const name = description || [vendor, architecture].filter(Boolean).join(" ") || "unnamed";
    await init();
    const page = await Page.open(plain);
    const device = JSON.parse(page.device());
    const adapter = { name, vendor, architecture, device: model, description };
    const mebi = (bytes) => `${Math.round(bytes / 2 ** 20).toLocaleString("en")} MiB`;
    at("adapter").replaceWith(table([
        ["Name", name],
        ["Vendor", vendor || "not told"],
        ["Architecture", [architecture, model].filter(Boolean).join(", ") || "not told"],
        ["Driver on the CPU", device.software ? "yes: its speed says nothing about a GPU" : "no"],
        ["Subgroups", device.subgroup_sizes ? `${device.subgroup_sizes.join(" to ")} lanes` : "none"],
        ["Time stamps", device.timestamps ? "yes" : "no, so single kernels are not timed"],
        ["Bodies chosen", `rank ${device.rank_body}, look-up ${device.lookup_body}`],
        ["Storage buffers a stage", String(device.limits.storage_buffers_per_stage)],
        ["Largest binding, buffer", `${mebi(device.limits.binding_bytes)}, ${mebi(device.limits.buffer_bytes)}`],
        ["hotrow", `version ${device.version} at ${device.commit}`],
    ], false));
    state.phase = "ready";
    state.page = page;
    say("Ready. The measurement takes a minute or two; keep this page in view.");
    at("start").disabled = false;
    const start = () => run(page, adapter, device).catch((error) => fail(String(error.message ?? error)));
    at("start").onclick = start;
    if (asked.has("start")) await start();
}

open().catch((error) => fail(String(error.message ?? error)));
