//! Checks that values are finite, as Metal and DX12 get them. Metal's compiler assumes by default that every float is finite, and so it may
//! drop a check of bits that it knows to be those of a float. So a check works on integers only, and its operand is either read from memory
//! as an integer or passes through `bits_of`, which hides the float with an exclusive or that no compiler can undo.

use std::collections::BTreeSet;

use super::{parse, rejected, to_hlsl, to_msl, validate};

/// The exponent of infinity and NaN, as both languages write it.
const EXPONENT: &str = "2139095040u";

/// The name, the head and the body of each function of a translated text.
fn functions(text: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    let (mut head, mut body) = (String::new(), None::<String>);
    for line in text.lines() {
        match &mut body {
            Some(open) if line.starts_with('}') => {
                if let Some((before, _)) = head.split_once('(') {
                    let name = before.split(|c| !is_name(c)).next_back().unwrap().to_owned();
                    all.push((name, std::mem::take(&mut head), std::mem::take(open)));
                }
                (head, body) = (String::new(), None);
            }
            Some(open) => *open += &format!("{line}\n"),
            // A declaration, or the thread counts of an entry point.
            None if line.is_empty() || line.starts_with('[') || line.ends_with(';') || line.ends_with("; }") => {
                head.clear();
            }
            None => {
                head += line;
                body = line.ends_with('{').then(String::new);
            }
        }
    }
    all
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with the names that it gives to types replaced by these types. Only Metal's has such names.
fn without_aliases(text: &str) -> String {
    let mut text = text.to_owned();
    let declared: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("typedef ")).map(str::to_owned).collect();
    for line in declared {
        let Some((of, name)) = line.trim_end_matches(';').split_once(' ') else { continue };
        if name.chars().all(is_name) {
            let words: Vec<_> = text.split_inclusive(|c| !is_name(c)).collect();
            let replaced = words.iter().map(|word| match word.strip_prefix(name) {
                Some(end) if !end.starts_with(is_name) => format!("{of}{end}"),
                _ => (*word).to_owned(),
            });
            text = replaced.collect();
        }
    }
    text
}

/// Whether an expression, or a function, takes a float's bits. DX12 reads every integer of a buffer with `asuint(buffer.Load(..))`.
fn takes_bits(text: &str) -> bool {
    let loads = |rest: &str| rest.trim_start_matches(is_name).starts_with(".Load");
    text.contains("as_type<") || text.match_indices("asuint(").any(|(at, found)| !loads(&text[at + found.len()..]))
}

/// Whether a function compares with the exponent of infinity.
fn compares(body: &str) -> bool {
    ["== ", "!= "].iter().any(|equal| {
        body.split(equal).skip(1).any(|rest| {
            rest.trim_start_matches('(')
                .trim_start_matches("metal::")
                .trim_start_matches("uint4(")
                .starts_with(EXPONENT)
        })
    })
}

/// The arguments of the calls of `name` in `body`.
fn arguments<'a>(name: &str, body: &'a str) -> Vec<&'a str> {
    let call = format!("{name}(");
    let calls = body.match_indices(&call).filter(|&(at, _)| !body[..at].ends_with(is_name));
    let argument = |(at, found): (usize, &str)| {
        let rest = &body[at + found.len()..];
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth < 0
        });
        &rest[..end.unwrap_or(rest.len())]
    };
    calls.map(argument).collect()
}

/// Checks every check of a translated text, and returns how many there are.
fn check(text: &str) -> Result<usize, String> {
    let functions = functions(&without_aliases(text));
    let hides = |body: &str| body.contains(" ^ ") && body.contains(".zero");
    let hiding: Vec<_> = functions.iter().filter(|(.., body)| hides(body)).map(|(name, ..)| name.as_str()).collect();
    let mut checks = 0;
    for (name, head, body) in functions.iter().filter(|(.., body)| compares(body)) {
        if takes_bits(body) || head.contains("float") || body.contains("float") {
            return Err(format!("{name} compares the bits of a float:\n{head}\n{body}"));
        }
        for (caller, _, body) in &functions {
            for argument in arguments(name, body) {
                checks += 1;
                let defined = format!(" {argument} = ");
                let line = body.lines().find(|line| line.contains(&defined));
                let value = line.and_then(|line| line.split_once(" = ")).map_or(argument, |(_, value)| value);
                let hidden = hiding.iter().any(|name| value.starts_with(&format!("{name}(")));
                // Read from memory as an integer: `buffer[..]`, or for DX12 `asuint(buffer.Load(..))`.
                let read = value.starts_with("asuint(") || value.split('(').next().is_some_and(|v| v.contains('['));
                let integer = line.is_some_and(|line| line.contains("uint")) && read && !takes_bits(value);
                if !hidden && !integer {
                    return Err(format!("{caller} gives {name} the bits of a float: {value}"));
                }
            }
        }
    }
    Ok(checks)
}

/// The text for Metal and the text for DX12.
fn translated(wgsl: &str, subgroups: bool) -> [String; 2] {
    let module = parse(wgsl).unwrap();
    let info = validate(&module, wgsl, subgroups).unwrap();
    let msl = if subgroups { (2, 1) } else { (2, 0) };
    [to_msl(&module, &info, msl).unwrap(), to_hlsl(&module, &info, subgroups).unwrap()]
}

#[test]
fn finite_checks_work_on_integers() {
    let mut checking = BTreeSet::new();
    let mut failures = Vec::new();
    for source in hotrow::internals::sources().iter().filter(|source| !source.float_atomics) {
        let texts = translated(&source.wgsl, source.subgroups);
        let counts = texts.map(|text| {
            check(&text).unwrap_or_else(|error| {
                failures.push(format!("{}/{}: {error}", source.name, source.variant));
                0
            })
        });
        if counts[0] != counts[1] {
            failures.push(format!("{}/{}: {counts:?} checks", source.name, source.variant));
        }
        if counts[0] > 0 {
            checking.insert(source.name);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let wanted =
        ["assign", "exchange", "grid", "grid_gradient", "halves", "robe_blocks", "robe_step", "robe_update", "update"];
    assert_eq!(checking.into_iter().collect::<Vec<_>>(), wanted);
}

/// A shader that checks what it stores, in the form of the crate's own.
const CHECKED: &str = "
struct Params { count: u32, zero: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> given: array<Bits>;
@group(0) @binding(2) var<storage, read_write> sink: array<Quad>;
alias Quad = vec4<f32>;
alias Bits = vec4<u32>;
fn bits_of(v: Quad) -> Bits {
    return bitcast<Bits>(v) ^ Bits(params.zero);
}
fn is_finite(bits: Bits) -> bool {
    return all((bits & Bits(0x7f800000u)) != Bits(0x7f800000u));
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let v = sink[id.x] * 2.0;
    if (is_finite(bits_of(v)) && is_finite(given[id.x])) { sink[id.x] = v; }
}";

#[test]
fn checks_of_floats_are_rejected() {
    let narrow = CHECKED
        .replace("vec4<f32>", "f32")
        .replace("vec4<u32>", "u32")
        .replace("Bits(params.zero)", "params.zero")
        .replace("Bits(0x7f800000u)", "0x7f800000u")
        .replace("all(", "(");
    for right in [CHECKED, &narrow] {
        for text in translated(right, false) {
            assert_eq!(check(&text), Ok(2), "{text}");
        }
        let wrong = [
            // The old form: the check takes a float.
            (
                right
                    .replace("is_finite(bits: Bits)", "is_finite(v: Quad)")
                    .replace("(bits &", "(bitcast<Bits>(v) &")
                    .replace("is_finite(bits_of(v))", "is_finite(v)")
                    .replace("is_finite(given[id.x])", "is_finite(sink[id.x])"),
                "is_finite compares",
            ),
            // The bits come straight from a computed float, from a loaded one, or from a function that hides nothing.
            (right.replace("is_finite(bits_of(v))", "is_finite(bitcast<Bits>(v))"), "the bits of a float"),
            (right.replace("is_finite(given[id.x])", "is_finite(bitcast<Bits>(sink[id.x]))"), "the bits of a float"),
            (right.replace(" ^ Bits(params.zero)", "").replace(" ^ params.zero", ""), "the bits of a float"),
            // A check within another function.
            (right.replace("is_finite(given[id.x])", "(bitcast<u32>(f32(id.x)) & 0x7f800000u) == 0x7f800000u"), "main"),
        ];
        for (wgsl, because) in wrong {
            assert_ne!(wgsl, right, "{because}");
            for text in translated(&wgsl, false) {
                rejected(check(&text), because);
            }
        }
    }
}

/// The crate's own shaders without the exclusive or.
#[test]
fn bits_that_are_not_hidden_are_rejected() {
    for (name, variant) in [("exchange", "quad4"), ("update", "quad1"), ("robe_blocks", "")] {
        let sources = hotrow::internals::sources();
        let source = sources.iter().find(|source| source.name == name && source.variant == variant).unwrap();
        let wrong = source.wgsl.replace(" ^ Bits(params.zero)", "").replace(" ^ params.zero", "");
        assert_ne!(wrong, source.wgsl, "{name}");
        for text in translated(&wrong, false) {
            rejected(check(&text), "the bits of a float");
        }
    }
}
