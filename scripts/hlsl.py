#!/usr/bin/env python3
"""Compiles every shader as HLSL with Microsoft's compilers, without Windows and without a GPU.

usage: hlsl.py dxc|fxc SHADERS.json HOTROW-ISA

SHADERS.json is what the example `dump_shaders dx12` prints, HOTROW-ISA the program that turns WGSL into the HLSL that wgpu hands to DX12.

dxc: DXC for Linux, in this process: every text with wgpu's checks and without, optimised and as debug builds have it, for shader models 6.0 and 6.6. Refuses
     doubles, which many GPUs lack, and chains of plain additions where SPEC 3 fixes the order of a sum: DXC adds them in an order of its own.
fxc: FXC under Wine: the texts for devices without subgroups, with wgpu's checks and without, readers with them. Only texts that have changed, since one takes up to 40 s.

Planted texts of each fault must be refused. A compiler that cannot be had is said loudly, and then nothing was tested."""

import collections, concurrent.futures, ctypes, hashlib, json, os, re, shutil, subprocess, sys, tarfile, tempfile, time, uuid, zipfile
from pathlib import Path

top = Path(__file__).resolve().parent.parent
work = Path(os.environ.get("CARGO_TARGET_DIR", top / "target")).resolve() / "hlsl"

# Stages whose plain additions and products may stand in chains, the most chains of a text today, so that a new one is seen, and why no rule fixes their order.
RULES = "an optimiser's rule holds within a tolerance (SPEC 3)"
FREE = {
    "update": (30, RULES),
    "robe_update": (10, RULES),
    "robe_blocks": (8, RULES),
    "robe_step": (4, RULES),
    "robe_scatter": (1, "its sums have no order (Atomic)"),
    "grid": (8, "a place is 0.5 at least, so the differences of places are exact in any order"),
    "grid_gradient": (10, "gradients of coordinates have no order"),
    "weight_gradient": (4, "the order of the additions is open (SPEC 3)"),
    "robe_weight_gradient": (4, "as weight_gradient"),
    "reader": (1000, "a module of the test adds its values; the corners of a grid's reader have no order"),
}
# Stages of which DXC may leave operations out, and why.
FOLDED = {"rescale": "sums of an exponent, which are whole numbers", **FREE}

# Texts that must be refused, and a word of the reason; one that must not be.
COMPUTE = "@compute @workgroup_size(32) fn main"
TO = "@group(0) @binding(0) var<storage, read_write> to: array<f32>;\n@group(0) @binding(1) var<uniform> by: vec4<f32>;\n"
PLANTED = {
    "dxc": {
        "a subgroup's builtin in a struct": (TO + "struct Lane { @builtin(subgroup_invocation_id) i: u32 }\n" + COMPUTE + "(lane: Lane) { to[lane.i] = 1.0; }", "Semantic"),
        "two zeros of one type": (TO + "alias Quad = vec4<f32>;\n" + COMPUTE + "() { let a = by * Quad() + by / vec4<f32>(); to[0] = a.x; }", "ZeroValue"),
        "doubles of a debug build": (TO + COMPUTE + "() { let a = select(vec3<f32>(-1.0), vec3<f32>(1.0), by.xyz > vec3<f32>(0.0)); to[0] = a.x; }", "doubles"),
        "a cancellation": (TO + COMPUTE + "() { to[0] = (to[1] + to[2]) - to[1]; }", "left out"),
        "a sum in no order": (TO + COMPUTE + "() { to[0] = ((to[1] + to[2]) + to[3]) + to[4]; }", "in DXC's order"),
        "a right text": (TO + COMPUTE + "(@builtin(local_invocation_index) i: u32) { to[i] = to[i + 1u] * by.x; }", ""),
    },
    "fxc": {
        "an early return before barriers": (
            "@group(0) @binding(0) var<storage, read_write> to: array<u32>;\n@group(0) @binding(1) var<uniform> count: vec4<u32>;\n"
        "var<workgroup> all: array<u32, 256>;\n@compute @workgroup_size(256) fn main(@builtin(local_invocation_index) me: u32) {\n"
        "if (count.y <= 4u) { for (var row = me; row < count.x; row += 256u) { to[row] = 1u; } return; }\n"
        "for (var row = 0u; row < count.x; row++) { workgroupBarrier(); all[me] = to[me]; workgroupBarrier(); to[me + row] = all[255u - me]; } }",
            "X3663",
        ),
        "a right text": (TO + COMPUTE + "(@builtin(local_invocation_index) i: u32) { to[i] = to[i + 1u] * by.x; }", ""),
    },
}


def skip(name, why):
    print(f"{name}: SKIPPED: {why}, so no shader was compiled")
    sys.exit(0)


def fetched(name, file, command, inside):
    """The file `inside` of an archive that `command` fetches into a folder; kept for the next time."""
    if not (work / file).exists():
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as folder:
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True) if shutil.which(command[0]) else None
            archive = next((path for path in Path(folder).iterdir()), None)
            if archive is None:
                skip(name, f"{file} could not be had ({(ran.stderr.strip().splitlines() or ['no archive'])[-1] if ran else f'there is no {command[0]}'})")
            if archive.suffix == ".whl":
                data = zipfile.ZipFile(archive).read(inside)
            else:
                data = tarfile.open(archive).extractfile(inside).read()
        (work / file).write_bytes(data)
    return work / file


# ---- DXC, by its COM interface


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t), ("encoding", ctypes.c_uint)]


def method(this, index, *types, returns=ctypes.c_long):
    """The method of a COM object at that place of its table."""
    table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    call = ctypes.CFUNCTYPE(returns, ctypes.c_void_p, *types)(table[index])
    return lambda *arguments: call(this, *arguments)


class Dxc:
    def __init__(self, library):
        self.compiler, create = ctypes.c_void_p(), ctypes.CDLL(str(library)).DxcCreateInstance
        known = [uuid.UUID(name).bytes_le for name in ("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0", "228b4687-5a6a-4730-900c-9702b2203f54")]
        if create(*known, ctypes.byref(self.compiler)):
            raise OSError(f"{library} makes no compiler")

    def _outcome(self, index, types, *arguments):
        """Whether the call succeeded, and its bytes: the result, or the compiler's words."""
        result, status, blob = ctypes.c_void_p(), ctypes.c_long(), ctypes.c_void_p()
        kind = uuid.UUID("58346cda-dde7-4497-9461-6f87af5e0659").bytes_le
        if method(self.compiler, index, *types, ctypes.c_char_p, ctypes.c_void_p)(*arguments, kind, ctypes.byref(result)):
            raise OSError("a call of DXC failed")
        method(result, 3, ctypes.c_void_p)(ctypes.byref(status))
        succeeded = status.value & 0x80000000 == 0
        method(result, 4 if succeeded else 5, ctypes.c_void_p)(ctypes.byref(blob))
        data, size = method(blob, 3, returns=ctypes.c_void_p)(), method(blob, 4, returns=ctypes.c_size_t)()
        found = ctypes.string_at(data, size)
        method(blob, 2)()
        method(result, 2)()
        return succeeded, found

    def compile(self, hlsl, *arguments):
        words, source = (ctypes.c_wchar_p * len(arguments))(*arguments), Buffer(hlsl, len(hlsl), 65001)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p)
        return self._outcome(3, types, ctypes.byref(source), words, len(arguments), None)

    def disassemble(self, dxil):
        return self._outcome(4, (ctypes.c_void_p,), ctypes.byref(Buffer(dxil, len(dxil), 0)))[1].decode(errors="replace")


def chains(dxil):
    """The additions to sums and the factors of products, which DXC may reorder."""
    seen, found = set(), []
    for line in dxil.splitlines():
        step = re.match(r"\s*(%\S+) = f(add|sub|mul) fast float (\S+), (\S+)", line)
        if step:
            kind = step[2].replace("sub", "add")
            if seen & {(kind, step[3]), (kind, step[4])}:
                found.append(line.strip())
            seen.add((kind, step[1]))
    return found


def operations(dxil):
    """The numbers of operations on floats by kind."""
    return collections.Counter(re.findall(r" = f(add|sub|mul|div) (?:fast )?float", dxil)), dxil.count("dx.op.tertiary.f32(i32 46,")


def against_dxc(job):
    """What DXC has against a text, by mode."""
    library, name, path = job
    dxc, hlsl, found = Dxc(library), Path(path).read_bytes(), []
    for model in ("6_0", "6_6"):
        for level in ([], ["-Zi", "-Od"]):
            mode = f"SM {model.replace('_', '.')}{' debug' if level else ''}"
            good, out = dxc.compile(hlsl, "-E", "main", "-T", f"cs_{model}", "-HV", "2018", "-no-warnings", "-Ges", *level)
            if not good:
                words = [line for line in out.decode(errors="replace").splitlines() if "error" in line]
                found.append(f"{mode}: {words[0] if words else 'refused'}")
            elif level and " double " in dxc.disassemble(out):
                found.append(f"{mode}: doubles, from a vector of literals: spell out its components")
            elif not level:
                dxil, stage = dxc.disassemble(out), name.split()[0]
                lines = chains(dxil)
                if len(lines) > FREE.get(stage, (0,))[0]:
                    found.append(f"{mode}: {len(lines)} sums or products in DXC's order, where the text's counts: take `plus` or `times` of shared/steps_settled.wgsl: {lines[-1]}")
                # With -Gis, which wgpu cannot pass, DXC leaves every operation as it stands.
                if model == "6_0" and stage not in FOLDED:
                    strict = operations(dxc.disassemble(dxc.compile(hlsl, "-E", "main", "-T", "cs_6_0", "-HV", "2018", "-no-warnings", "-Ges", "-Gis")[1]))
                    if strict != operations(dxil):
                        found.append(f"{mode}: operations that DXC left out or joined: {operations(dxil)} in place of {strict}")
    return name, found


# ---- FXC, under Wine

WINE = dict(os.environ, WINEPREFIX=str(work / "wine"), WINEDEBUG="-all", WINEDLLOVERRIDES="d3dcompiler_47=n;mscoree,mshtml=")


def wine():
    return next((path for name in ("wine64", "wine", "/usr/lib/wine/wine64") if (path := shutil.which(name))), None)


def against_fxc(job):
    """What FXC has against a text, and its seconds."""
    _, name, path = job
    start = time.monotonic()
    # Into a file: Wine's server, which the first program starts, would hold a pipe open.
    with open(f"{path}.txt", "w+", errors="replace") as said:
        program = [wine(), work / "fxc.exe", work / "d3dcompiler_47.dll", path]
        ran = subprocess.run(program, env=WINE, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=1200)
        said.seek(0)
        lines = said.read().splitlines()
    words = [line for line in lines if "error" in line] or lines
    print(f"fxc: {name} in {time.monotonic() - start:.0f} s", flush=True)
    return name, [] if ran.returncode == 0 else [words[0] if words else f"exit code {ran.returncode}"]


def setup_fxc():
    subprocess.run([top / "scripts/setup", "--fxc"], check=False)
    if not (wine() and shutil.which("x86_64-w64-mingw32-gcc")):
        skip("fxc", "Wine, or a C compiler for Windows, could not be installed")
    fetched("fxc", "d3dcompiler_47.dll", ["npm", "pack", "--silent", "webgpu@0.6.2"], "package/dist/win32-x64/d3dcompiler_47.dll")
    subprocess.run(["x86_64-w64-mingw32-gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", work / "fxc.exe", top / "scripts/fxc.c"], check=True)
    silent = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([wine(), "wineboot", "-i"], env=WINE, check=False, **silent)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in PLANTED:
        sys.exit(__doc__)
    which, shaders, program = sys.argv[1:]
    start = time.monotonic()
    library = None
    if which == "dxc":
        wheel = "pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 compushady-lrtu==0.18.0"
        library = fetched("dxc", "libdxcompiler.so", [sys.executable, "-m", *wheel.split()], "compushady/backends/libdxcompiler_x86_64.so")
    else:
        setup_fxc()
    with tempfile.TemporaryDirectory(prefix="hotrow-hlsl-") as folder:
        files, names = [], {}
        for number, shader in enumerate(json.loads(Path(shaders).read_text())):
            if which == "fxc" and shader["subgroups"]:
                continue
            file = Path(folder, f"{shader['name']}-{number}.wgsl")
            names[file.stem] = re.sub(r", constants: [^)]*\)|[{}:]", "", f"{shader['name']} {shader['variant']}").strip()
            file.write_text(shader["wgsl"])
            files.append(file)
        for number, (name, (wgsl, _)) in enumerate(PLANTED[which].items()):
            file = Path(folder, f"planted-{number}.wgsl")
            names[file.stem] = name
            file.write_text(wgsl)
            files.append(file)
        subprocess.run([program, folder, "hlsl", *files], check=True)
        known_file = work / f"{which}.json"
        known = set(json.loads(known_file.read_text())) if which == "fxc" and known_file.exists() else set()
        compiler = b"" if which == "dxc" else (work / "d3dcompiler_47.dll").read_bytes() + (top / "scripts/fxc.c").read_bytes()
        jobs, planted, hashes = [], [], {}
        for path in sorted(Path(folder).glob("*.hlsl")):
            stem, _, mode = path.stem.partition(".-.")
            is_planted, digest = stem.startswith("planted"), hashlib.sha256(path.read_bytes() + compiler).hexdigest()
            # A reader's text stands in the caller's module, which wgpu checks.
            wanted = which == "dxc" or mode == "checked" or not stem.startswith("reader")
            if is_planted and mode == "trusted":
                planted.append((library, f"planted {names[stem]}", str(path)))
            elif not is_planted and wanted and digest not in known and digest not in hashes.values():
                name = f"{names[stem]} ({mode})"
                jobs.append((library, name, str(path)))
                hashes[name] = digest
        against = against_dxc if which == "dxc" else against_fxc
        found = {}
        # A compiler that crashes ends the pool, and so the script.
        with concurrent.futures.ProcessPoolExecutor() as pool:
            refused = dict(pool.map(against, planted))
            for done in concurrent.futures.as_completed([pool.submit(against, job) for job in jobs]):
                name, faults = done.result()
                found[name] = faults
                if not faults and which == "fxc":
                    known.add(hashes[name])
                    known_file.write_text(json.dumps(sorted(known)))
    for name, faults in sorted(found.items()):
        for fault in faults:
            print(f"{which}: REFUSED  {name}: {fault}")
    words = {name.removeprefix("planted "): " ".join(faults) for name, faults in refused.items()}
    missed = [name for name, (_, why) in PLANTED[which].items() if bool(why) != bool(words[name]) or why not in words[name]]
    bad = sum(map(bool, found.values()))
    print(f"{which}: {len(found) - bad} texts accepted, {len(known)} texts known; {len(refused) - len(missed)} of {len(refused)} planted texts as they must be; {time.monotonic() - start:.0f} s")
    if bad or missed or not refused or not (found or known):
        sys.exit(f"{which}: {bad} texts refused, planted texts that were not as they must be: {', '.join(missed) or 'none'}")


if __name__ == "__main__":
    main()
