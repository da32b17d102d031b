//! An input of each kind that its target accepts.

use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::{calls, saved, stores};

/// Inputs that the target of this name accepts.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let texts = |all: &[&str]| all.iter().map(|text| text.as_bytes().to_vec()).collect();
    let ids = words(&[3, 1, 4, 1, 5]);
    match target {
        "trace_u32" => vec![[&[0][..], &ids].concat(), [&[154][..], &words(&[0, 1, 2]), &words(&[7, 8])].concat()],
        "trace_records" => {
            let record = words(&[5, 7, 0, 1, u32::MAX, u32::MAX]);
            vec![[&[0][..], &words(&[1, 0])].concat(), [&[1][..], &record].concat(), [&[2][..], &record].concat()]
        }
        "trace_zst" => vec![packed(&ids)],
        "trace_npy" => ["<u4", "<i4", "<u8", "<i8"]
            .iter()
            .map(|kind| npy(kind, "(2,)", &words(&[1, 0, 2, 0][..usize::from(kind.as_bytes()[2] - b'0') / 2])))
            .collect(),
        "trace_text" => texts(&["1 2,3\n\n4\n", "7"]),
        "trace_criteo" => {
            let line = format!("1\t{}{}\n", "-3\t".repeat(13), vec!["0a1b2c3d"; 26].join("\t"));
            vec![[&[0], line.as_bytes()].concat(), [&[2][..], &packed(line.as_bytes())].concat()]
        }
        "trace_generated" => texts(&[
            "zipf:rows=50,s=1.1,n=60",
            "uniform:rows=5,n=40",
            "meta2021:rows=30,n=90",
            "zipf:rows=9,s=1e300,n=9",
        ]),
        "labels" => vec![vec![3, 0, 0, 1, 2], [&[3, 1][..], &packed(&[0, 1, 2])].concat()],
        "checkpoint" => saved::row_seeds(),
        "checkpoint_robe" => saved::robe_seeds(),
        "manifest" => texts(&[r#"{"format":"hotrow shards 1","save":1,"shards":2,"tables":[5],"cache_rows":2}"#]),
        "file_store" => {
            let file = stores::seed();
            let signed = |sign: u8| [&[sign][..], &file[..64], &file[4096..]].concat();
            vec![signed(0), signed(1)]
        }
        "source_npy" => vec![npy("<f4", "(2, 3)", &[1; 24])],
        "source_raw" => vec![vec![1; 24]],
        "import" => import(),
        "bench_json" => vec![page().to_string().into_bytes()],
        "distribution" => texts(&[
            "zipf:rows=1e9,s=1.05",
            "exponential:rows=1e6,scale=1e4",
            "half-normal:rows=1e6,scale=1e4",
            "uniform:rows=1e6",
        ]),
        "options" => texts(&[
            "plan\n--distribution\nzipf:rows=1e9,s=1.05\n--budget\n64MiB",
            "plan\nmemory\n--rows\n7,9\n--precision\nint4,fp16\n--cache-percent\n10",
            "simulate\n--trace\nzipf:rows=9,s=1\n--ways\n0,1,8\n--policy\nlru,lfu\n--batch\n16",
            "plan\ndist\n--ranks\n2,4\n--precision\nint8",
            "bench\ncompare\na.json\nb.json",
            "bench\nsuite\n--seed\n3",
            "import\nx.npy\n--out\ny\n--tensor\na,b",
        ]),
        "calls" => calls::seeds(),
        _ => Vec::new(),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap()
}

/// An array of numpy's.
#[must_use]
pub fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    text.extend(std::iter::repeat_n(' ', 117 - text.len()));
    text.push('\n');
    [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), data].concat()
}

/// A file of tensors of zeros.
fn tensors(kind: Dtype, all: &[(&'static str, [usize; 2])], texts: &[(&str, &str)]) -> Vec<u8> {
    let zeros = [0; 64];
    let view = |&(name, [rows, width]): &(&'static str, [usize; 2])| {
        let data = &zeros[..rows * width * kind.bitsize() / 8];
        (name, TensorView::new(kind, vec![rows, width], data).unwrap())
    };
    let texts = texts.iter().map(|&(field, text)| (field.into(), text.into())).collect();
    safetensors::serialize(all.iter().map(view), Some(texts)).unwrap()
}

/// A file for each of the options.
fn import() -> Vec<Vec<u8>> {
    let numbered = [("0.weight", [2, 8]), ("1.weight", [1, 8])];
    let stated = |format| [("format", format), ("precision", "int8")];
    let kinds = [
        npy("<f4", "(2, 3)", &[1; 24]),
        npy("<f4", "(2, 8)", &[1; 64]),
        tensors(Dtype::F32, &numbered, &[]),
        tensors(Dtype::F32, &[("x", [3, 5])], &[]),
        tensors(Dtype::F32, &[("a", [1, 2]), ("b", [2, 2])], &[]),
        tensors(Dtype::U8, &[("x", [2, 12])], &stated("hotrow fused")),
        tensors(Dtype::U8, &[("0.weight", [2, 12]), ("1.weight", [1, 12])], &[]),
        tensors(Dtype::U8, &[("x", [2, 6])], &[]),
        tensors(Dtype::U8, &[("x", [2, 12])], &stated("hotrow tbe")),
        tensors(Dtype::U8, &[("x", [3, 16])], &[]),
        tensors(Dtype::U8, &numbered, &[]),
        npy("<f4", "(1, 2)", &[0; 8]),
    ];
    (0u8..).zip(kinds).map(|(kind, file)| [vec![kind], file].concat()).collect()
}

/// What `bench` and the measuring page save.
#[must_use]
pub fn page() -> serde_json::Value {
    let record = |what: &str, hits, unit: &str| {
        json!({ "what": what, "shape": "page", "setting": { "precision": "INT8", "aim": hits, "hits": hits }, "value": 0.001,
                "unit": unit, "spread": { "median": 0.001, "lowest": 0.001, "highest": 0.002, "rounds": 5 } })
    };
    json!({
        "schema": 2, "command": "web page", "version": "0.1.0", "commit": "abc", "date": "2026-01-01T00:00:00Z", "shapes": { "page": "rows" },
        "machines": [{ "adapter": "a", "backend": "webgpu", "driver": "a browser", "software": false, "timing": "wall clock",
                       "subgroup": [4, 32], "binding_bytes": 1024, "threads": 1 }],
        "self_test": { "cases": 3, "passed": 3 },
        "records": [record("forward", 50.0, "seconds"), record("forward logical", 50.0, "bytes_per_second"),
                    record("backward", 100.0, "seconds"), record("sort, 32 bits", 0.0, "seconds")],
    })
}
