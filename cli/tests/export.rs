//! `hotrow export` and `hotrow import` from outside: tables that numpy, torch and FBGEMM wrote, what FBGEMM read from exported bytes
//! (tests/fixtures, made by `scripts/fbgemm_fixtures.py`), and bad input.

use crate::common::command::{outcome, read, value};
use crate::common::{bytes, npy, plan::words};
use crate::golden;
use hotrow::internals::codec::half_from_f32;
use hotrow::{
    Bags, CpuGroup, CpuSharedGroup, GroupConfig, Init, Mode, Optimizer, Policy, Precision, Rounding, checkpoint,
    prelude::*, robe,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use tempfile::TempDir;

const ROWS: usize = 24;
const DIM: usize = 16;
const FORMS: [&str; 2] = ["fused", "tbe"];
const INTEGERS: [Precision; 3] = [Precision::Int8, Precision::Int4, Precision::Int2];

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The bytes of a tensor in a file.
fn data(file: &[u8], name: &str) -> Vec<u8> {
    SafeTensors::deserialize(file).unwrap().tensor(name).unwrap().data().to_vec()
}

/// The bytes of a tensor of FBGEMM's.
fn tensor(name: &str) -> Vec<u8> {
    data(&fs::read(fixture("fbgemm.safetensors")).unwrap(), name)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

/// The values of `rows.npy`, behind its header.
fn rows() -> Vec<f32> {
    let file = fs::read(fixture("rows.npy")).unwrap();
    floats(&file[file.len() - 4 * ROWS * DIM..])
}

struct Folder(TempDir, Cell<u32>);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap(), Cell::new(0))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// A file of safetensors.
    fn tensors(&self, name: &str, tensors: &[(&str, Dtype, &[usize], &[u8])]) -> String {
        let views = tensors
            .iter()
            .map(|&(name, dtype, shape, data)| (name, TensorView::new(dtype, shape.to_vec(), data).unwrap()));
        self.write(name, &safetensors::serialize(views, None).unwrap())
    }

    /// Exports a checkpoint and returns the file that was written.
    fn export(&self, checkpoint: &str, format: &str, more: &[&str]) -> Vec<u8> {
        let out = self.path("exported");
        outcome(&[&["export", checkpoint, "--format", format, "--out", &out], more].concat(), 0);
        fs::read(out).unwrap()
    }

    /// Imports a file and returns the new checkpoint, which no later one overwrites.
    fn import(&self, file: &str, more: &[&str]) -> String {
        self.1.set(self.1.get() + 1);
        let out = self.path(&format!("imported-{}", self.1.get()));
        outcome(&[&["import", file, "--out", &out], more].concat(), 0);
        out
    }
}

/// Loads a checkpoint as an embedder does.
fn load(path: &str) -> CpuGroup {
    let mut group = CpuGroup::new(checkpoint::contents(path).unwrap().0).unwrap();
    checkpoint::load(&mut group, path).unwrap();
    group
}

fn values(path: &str) -> Vec<f32> {
    let mut group = load(path);
    let rows = group.config().total_rows() as u32;
    group.read_rows(&(0..rows).collect::<Vec<_>>()).unwrap()
}

/// The first value that is more than a rounding of the product (which FBGEMM's compiler may fuse) away from FBGEMM's.
fn wrong(found: &[f32], wanted: &[f32]) -> Option<String> {
    assert_eq!(found.len(), wanted.len());
    let rows = found.chunks_exact(DIM).zip(wanted.chunks_exact(DIM));
    rows.enumerate().find_map(|(row, (found, wanted))| {
        // The product of code and scale is at most the greatest difference of two values of the row.
        let span = wanted.iter().fold(f32::MIN, |a, &x| a.max(x)) - wanted.iter().fold(f32::MAX, |a, &x| a.min(x));
        let each = found.iter().zip(wanted).enumerate();
        each.map(|(e, (x, y))| (e, x, y, (x - y).abs() > (span + y.abs()) * 2f32.powi(-23)))
            .find_map(|(e, x, y, far)| far.then(|| format!("row {row}, element {e}: {x}, FBGEMM read {y}")))
    })
}

#[test]
fn rows_that_fbgemm_packed_have_the_values_that_fbgemm_reads() {
    let folder = Folder::new();
    for form in FORMS {
        for precision in INTEGERS {
            let name = format!("{form}.{precision}");
            let packed = tensor(&name);
            let file = folder.tensors("packed", &[("weight", Dtype::U8, &[ROWS, packed.len() / ROWS], &packed)]);
            let options = ["--format", form, "--precision", precision.name()];
            let table = folder.import(&file, &options);
            let wanted = floats(&tensor(&format!("{name}.values")));
            assert_eq!(wrong(&values(&table), &wanted), None, "{name}");
            // The table takes the codes as they are, so they come out as they went in, but those of a scale of 0.
            let again = data(&folder.export(&table, form, &[]), "weight");
            let width = packed.len() / ROWS;
            let differing = packed.chunks(width).zip(again.chunks(width)).enumerate().filter(|(_, (a, b))| a != b);
            for (row, _) in differing {
                let row = &wanted[row * DIM..][..DIM];
                assert!(row.iter().all(|x| x == &row[0]), "{name}: {row:?}");
            }
            // A code that is one off, or another precision's reading, does not pass.
            let mut damaged = packed.clone();
            let code = if form == "tbe" { 10 * width + 4 } else { 10 * width };
            damaged[code] ^= 1;
            let file = folder.tensors("packed", &[("weight", Dtype::U8, &[ROWS, width], &damaged)]);
            assert!(wrong(&values(&folder.import(&file, &options)), &wanted).is_some(), "{name}");
        }
    }
}

/// The bits of rows of a table, by the exported weights and constants alone, as SPEC 8 has it.
fn recovered(weights: &[u32], hash: &Value, table: usize, rows: &[u32]) -> Vec<u32> {
    let number = |name: &str| u128::from(hash[name].as_u64().unwrap());
    let [prime, r1, r2, r3, dim, chunk] = ["prime", "r1", "r2", "r3", "dim", "chunk"].map(number);
    let base: u128 =
        hash["tables"].as_array().unwrap()[..table].iter().map(|rows| u128::from(rows.as_u64().unwrap())).sum();
    let place = |row: u128, e: u128| match hash["addressing"].as_str().unwrap() {
        "hashed" => (row * r3 + e / chunk * r2 + r1) % prime % (number("weights") - chunk + 1) + e % chunk,
        "rows" => (row * r3 + r1) % prime % (number("weights") / dim) * dim + e,
        _ => row * dim + e,
    };
    let each = rows.iter().flat_map(|&row| (0..dim).map(move |e| (base + u128::from(row), e)));
    each.map(|(row, e)| weights[place(row, e) as usize]).collect()
}

/// The rows of an exported shared array are found without hotrow, to the bit.
#[test]
fn rows_of_an_exported_array_are_those_of_a_forward() {
    let (folder, tables) = (Folder::new(), [3000, 40]);
    let whole = robe::Config::new(&tables, 8, 160, 8).with_addressing(robe::Addressing::Rows);
    let direct = robe::Config::direct(&tables, 8).unwrap().with_precision(Precision::Fp16);
    let hashed = [3, 8].map(|chunk| robe::Config::new(&tables, 8, 500, chunk).with_precision(Precision::Int8));
    for config in hashed.into_iter().chain([whole, direct]) {
        let mut group = CpuSharedGroup::new(config.with_optimizer(Optimizer::adagrad(0.1))).unwrap();
        let outputs = group.forward(Bags::new(&[7, 9, 39], &[0, 2, 3]), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
        checkpoint::save_lookup(&mut group, folder.path("array")).unwrap();
        let file = folder.export(&folder.path("array"), "npy", &[]);
        let weights: Vec<u32> =
            floats(&file[file.len() - 4 * group.config().weights as usize..]).iter().map(|x| x.to_bits()).collect();
        let hash = read(folder.path("exported.json"));
        let rows = [0, 7, 39];
        for table in 0..2 {
            // Bags of a row each, behind or before empty ones of the other table.
            let offsets = if table == 0 { [0, 1, 2, 3, 3, 3, 3] } else { [0, 0, 0, 0, 1, 2, 3] };
            let both = group.forward(Bags::new(&rows, &offsets), Mode::Frozen).unwrap();
            let outputs: Vec<u32> = both[24 * table..][..24].iter().map(|x| x.to_bits()).collect();
            let name = group.config().addressing.name();
            assert_eq!(recovered(&weights, &hash, table, &rows), outputs, "{name}");
            let mut wrong = hash.clone();
            wrong["r1"] = (hash["r1"].as_u64().unwrap() + 1).into();
            let other = recovered(&weights, &wrong, table, &rows) != outputs;
            assert!(other || name == "direct", "{name}: the comparison can fail");
            wrong["tables"][0] = 2999.into();
            assert!(table == 0 || recovered(&weights, &wrong, table, &rows) != outputs, "{name}");
        }
    }
    // Bad input; nothing is written.
    let cut = fs::read(folder.path("array")).unwrap();
    folder.write("cut", &cut[..cut.len() - 1]);
    golden::refused("export-array", folder.0.path());
}

#[test]
fn fbgemm_reads_exported_rows_as_hotrow_does() {
    let folder = Folder::new();
    let mut seen = 0;
    for precision in INTEGERS {
        let options = ["--precision", precision.name(), "--rounding", "nearest"];
        let table = folder.import(&fixture("rows.npy"), &options);
        let ours = values(&table);
        for form in FORMS {
            let name = format!("export.{form}.{precision}");
            let file = folder.export(&table, form, &[]);
            // These bytes are what FBGEMM has read ...
            assert!(data(&file, "weight") == tensor(&name), "{name}");
            // ... as these values. In FP16, scale and bias are other numbers.
            let theirs = floats(&tensor(&format!("{name}.values")));
            let again = folder.path("again.safetensors");
            let report = value(&["export", &table, "--format", form, "--out", &again]);
            let largest = theirs.iter().zip(&ours).map(|(x, y)| f64::from((x - y).abs())).fold(0.0, f64::max);
            match report["largest_change"]["weight"].as_f64() {
                // The figure bounds what changed, and is no more than a few times that: row 4's codes are 0 to the greatest.
                Some(bound) if form == "tbe" || precision != Precision::Int8 => {
                    assert!(largest <= bound + 0.01 && bound <= 1.5 * largest, "{name}: {largest}, stated {bound}");
                    seen += 1;
                }
                _ => assert_eq!(wrong(&ours, &theirs), None, "{name}"),
            }
            // The way back reads what FBGEMM reads.
            let file = folder.write("exported.safetensors", &file);
            let back = folder.import(&file, &["--format", form]);
            assert_eq!(wrong(&values(&back), &theirs), None, "{name}");
            let mut shifted = theirs.clone();
            shifted[10 * DIM] += 0.01;
            assert!(wrong(&values(&back), &shifted).is_some(), "{name}");
        }
    }
    assert_eq!(seen, 5, "every form but INT8 with FP32 scales");
}

#[test]
fn plain_rows_are_the_same_bits_everywhere() {
    let folder = Folder::new();
    // From numpy and back.
    let table = folder.import(&fixture("rows.npy"), &[]);
    assert!(bytes(&values(&table)) == bytes(&rows()));
    let array = folder.export(&table, "npy", &[]);
    assert!(array.ends_with(&bytes(&rows())));
    let again = folder.write("again.npy", &array);
    assert!(values(&folder.import(&again, &[])) == rows());
    // From torch and back, two tables. torch has loaded these bytes.
    let table = folder.import(&fixture("torch.safetensors"), &[]);
    let group = load(&table);
    assert_eq!((&group.config().tables[..], group.config().dim), (&[5, 3][..], 6));
    let file = fs::read(fixture("torch.safetensors")).unwrap();
    let data = |name: &str| data(&file, name);
    assert_eq!(bytes(&values(&table)), [data("0.weight"), data("1.weight")].concat());
    let found = folder.export(&table, "safetensors", &[]);
    let wanted_file = tensor("export.safetensors");
    // The order of the fields in a header is open.
    let [found, wanted_file] = [&found, &wanted_file].map(|file| SafeTensors::deserialize(file).unwrap());
    for name in ["0.weight", "1.weight"] {
        let [found, wanted] = [&found, &wanted_file].map(|file| file.tensor(name).unwrap());
        assert_eq!((found.data(), found.shape()), (wanted.data(), wanted.shape()));
    }
    // Of one table, and tables by name in another order.
    let second = folder.export(&table, "npy", &["--table", "1"]);
    assert!(second.ends_with(&data("1.weight")));
    let turned = folder.import(&fixture("torch.safetensors"), &["--tensor", "1.weight,0.weight"]);
    assert_eq!(bytes(&values(&turned)), [data("1.weight"), data("0.weight")].concat());
}

/// A trained group of two tables with AdaGrad, whose newest rows are in the cache, saved.
fn trained(folder: &Folder, precision: Precision) -> (CpuGroup, String) {
    let config = GroupConfig::new(&[40, 60], DIM as u32)
        .with_precision(precision)
        .with_cache_rows(32)
        .with_policy(Policy::Lfu)
        .with_init(Init::Normal { mean: 0.0, std: 0.1 })
        .with_optimizer(Optimizer::adagrad(0.1));
    let mut group = CpuGroup::new(config).unwrap();
    for step in 0..20 {
        let outputs =
            group.forward(Bags::new(&[step, 2 * step, 3 * step % 60, step], &[0, 2, 4]), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
    }
    let path = folder.path("trained.safetensors");
    checkpoint::save(&mut group, &path).unwrap();
    (group, path)
}

#[test]
fn a_trained_table_goes_out_with_its_newest_rows_and_comes_back_trainable() {
    let folder = Folder::new();
    for precision in [Precision::Fp32, Precision::Fp16, Precision::Int8, Precision::Int4, Precision::Int2] {
        let (mut group, path) = trained(&folder, precision);
        let all: Vec<u32> = (0..100).collect();
        // FP32 rows come out of the cache as they are, not as a flush would round them.
        let newest = group.read_rows(&all).unwrap();
        let file = folder.export(&path, "safetensors", &[]);
        let data = |name: &str| floats(&data(&file, name));
        assert!([data("0.weight"), data("1.weight")].concat() == newest, "{precision}");
        group.flush().unwrap();
        group.reset().unwrap(); // from here on rows are read from their records
        let flushed = group.read_rows(&all).unwrap();
        let is_exact = precision == Precision::Fp32;
        assert_eq!(flushed == newest, is_exact, "{precision}: only the cache has the newest values");
        // Codes come out of a flush. With FP32 scales nothing changes.
        if precision == Precision::Int8 {
            let file = folder.export(&path, "fused", &[]);
            let file = folder.write("codes.safetensors", &file);
            let back = folder.import(&file, &["--like", &path, "--format", "fused"]);
            assert!(values(&back) == flushed);
            // Whatever loads the old checkpoint loads the new one: here the group itself.
            checkpoint::load(&mut group, &back).unwrap();
            assert!(group.read_rows(&all).unwrap() == flushed);
            group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
            group.backward(&[0.5; 2 * DIM]).unwrap();
        }
    }
}

#[test]
fn files_beside_the_output_stay() {
    let folder = Folder::new();
    let table = fs::read(folder.import(&fixture("rows.npy"), &["--precision", "int8"])).unwrap();
    let table = folder.write("in.partial", &table);
    let other = folder.write("out.partial", b"other");
    outcome(&["export", &table, "--format", "npy", "--out", &folder.path("in")], 0);
    outcome(&["export", &table, "--format", "npy", "--out", &folder.path("out")], 0);
    outcome(&["export", &folder.path("in"), "--format", "npy", "--out", &folder.path("out")], 1);
    let large = folder.write("large.npy", &npy("<f4", "(1, 2)", &bytes(&[1e30, 3e30])));
    let large = folder.import(&large, &["--precision", "int8"]);
    outcome(&["export", &large, "--format", "tbe", "--out", &folder.path("out")], 1);
    assert_eq!(load(&table).config().precision, Precision::Int8);
    assert_eq!(fs::read(other).unwrap(), b"other");
    let names: BTreeSet<_> = fs::read_dir(folder.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let wanted = ["imported-1", "imported-2", "in", "in.partial", "large.npy", "out", "out.partial"];
    assert!(names.iter().eq(&wanted), "{names:?}");
}

/// What is there is a pipe, or a link to a file that only its owner may read.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_a_link_is_followed() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    let folder = Folder::new();
    let table = folder.import(&fixture("rows.npy"), &[]);
    let (pipe, file, link) = (folder.path("pipe"), folder.write("file", b""), folder.path("link"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink("file", &link).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    for job in [&["export", &table, "--format", "npy"][..], &["import", &fixture("rows.npy")]] {
        let (_, stderr) = outcome(&[job, &["--out", &pipe]].concat(), 2);
        let wanted = format!("error: --out: wanted a file, found {pipe}, a pipe or a device; ");
        assert!(stderr.starts_with(&wanted) && stderr.lines().count() == 1, "{stderr}");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        fs::write(&file, b"old").unwrap();
        outcome(&[job, &["--out", &link]].concat(), 0);
        assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("file"));
        let found = fs::metadata(&file).unwrap();
        assert!(found.len() > 1000, "{job:?}");
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{job:?}");
    }
}

/// The command can write no file beyond 512 bytes, as on a full disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_and_leaves_the_old_file() {
    let folder = Folder::new();
    let array = folder.write("array.npy", &npy("<f4", "(4096, 16)", &[0; 4 * 4096 * 16]));
    // The larger table fails in the middle, the smaller one at the end.
    for table in [array, fixture("rows.npy")].map(|array| folder.import(&array, &["--precision", "int8"])) {
        for format in ["npy", "safetensors", "fused"] {
            let out = folder.write("out", b"old");
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]);
            command.arg(assert_cmd::cargo::cargo_bin!("hotrow"));
            let output = command.args(["export", &table, "--format", format, "--out", &out]).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let wanted = format!(
                "error: {out}: wanted to write the results there; make room, or check the folder and its permissions: File too large"
            );
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(stderr.starts_with(&wanted) && stderr.lines().count() == 1, "{format}: {stderr}");
            assert_eq!(fs::read(out).unwrap(), b"old");
            assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2 + folder.1.get() as usize);
        }
    }
}

#[test]
fn the_same_tables_give_the_same_bytes() {
    let folder = Folder::new();
    let plain = folder.import(&fixture("torch.safetensors"), &[]);
    let codes = folder.import(&fixture("torch.safetensors"), &["--precision", "int8"]);
    for (table, format) in [(plain, "safetensors"), (codes, "tbe")] {
        let first = folder.export(&table, format, &[]);
        assert!((0..8).all(|_| folder.export(&table, format, &[]) == first), "{format}");
    }
}

#[test]
fn settings_of_the_new_checkpoint() {
    let folder = Folder::new();
    let options = "--optimizer row-wise-adagrad --cache-rows 8 --policy lfu --precision int4 --seed 9";
    let config = load(&folder.import(&fixture("rows.npy"), &words(options))).config().clone();
    let wanted = GroupConfig::new(&[24], 16)
        .with_precision(Precision::Int4)
        .with_cache_rows(8)
        .with_policy(Policy::Lfu)
        .with_optimizer(Optimizer::row_wise_adagrad(0.01))
        .with_seed(9);
    assert_eq!(config, wanted);
    let options = ["--precision", "int8", "--rounding", "nearest"];
    assert_eq!(load(&folder.import(&fixture("rows.npy"), &options)).config().rounding, Rounding::Nearest);
}

/// Imported rows are rounded to nearest, whatever later training does, unless `--import-rounding` says otherwise.
#[test]
fn imported_rows_are_rounded_to_nearest() {
    let (folder, nearest) = (Folder::new(), Rounding::Nearest);
    let imported = |options: &str| {
        let table = folder.import(&fixture("rows.npy"), &words(options));
        let (found, config) = (values(&table), load(&table).config().clone());
        let near = rows().chunks(DIM).zip(found.chunks(DIM)).all(|(row, found)| {
            let [low, high] = row.iter().fold([f32::MAX, f32::MIN], |[a, b], &x| [a.min(x), b.max(x)]);
            let most = 0.501 / 255.0 * (high - low) + 2.0 * f32::EPSILON * low.abs();
            row.iter().zip(found).all(|(x, found)| (x - found).abs() <= most)
        });
        ((near, config.rounding, config.write_rounding), table)
    };
    for (rounding, given) in (0..4).map(|k| (Rounding::ALL[k / 2], ["", "--import-rounding stochastic"][k % 2])) {
        let write = if given.is_empty() { nearest } else { Rounding::Stochastic };
        let (found, table) = imported(&format!("--precision int8 --rounding {rounding} {given}"));
        assert_eq!(found, (write == nearest, rounding, write));
        // Another import takes the other settings.
        assert_eq!(imported(&format!("--like {table}")).0, (true, rounding, nearest));
        assert_eq!(imported(&format!("--like {table} {given}")).0, found);
    }
}

/// INT2 loses less of its rows under searched ranges; rows of codes have ranges of their own.
#[test]
fn imported_rows_get_searched_ranges() {
    let folder = Folder::new();
    let error = |options: &str| {
        let found = values(&folder.import(&fixture("rows.npy"), &words(options)));
        rows().iter().zip(&found).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    let [whole, searched] = ["--precision int2", "--precision int2 --search"].map(error);
    assert!(searched > 0.0 && searched < 0.9 * whole, "{searched} {whole}");
    let fused = folder.tensors("fused", &[("weight", Dtype::U8, &[ROWS, DIM + 8], &tensor("fused.int8"))]);
    let refused = outcome(
        &["import", &fused, "--format", "fused", "--precision", "int8", "--search", "--out", &folder.path("no")],
        2,
    );
    assert!(refused.1.contains("--search: wanted rows of floats, found rows of codes"), "{refused:?}");
}

#[test]
fn bad_input_of_import_is_told_by_name() {
    let folder = Folder::new();
    let fused = tensor("fused.int8");
    let good = fs::read(fixture("rows.npy")).unwrap();
    for name in ["rows.npy", "rows.bin"] {
        folder.write(name, &good);
    }
    folder.write("torch.safetensors", &fs::read(fixture("torch.safetensors")).unwrap());
    // Arrays.
    let mut nan = good.clone();
    let at = nan.len() - 4 * DIM;
    nan[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    for (name, content) in [
        ("cut.npy", good[..good.len() - 1].to_vec()),
        ("long.npy", [&good[..], &[0]].concat()),
        ("limit.npy", [&b"\x93NUMPY\x02\0\0\0\x01\0"[..], &[b' '; 70_000]].concat()),
        ("nan.npy", nan),
        // An archive of arrays is no pickle.
        ("arrays.npz", [&b"PK\x03\x04\0\0\0\0"[..], &[0; 18], b"\x09\0\0\0rows.npy"].concat()),
    ] {
        folder.write(name, &content);
    }
    // Tensors.
    folder.tensors("whole.safetensors", &[("weight", Dtype::U8, &[ROWS, DIM + 8], &fused)]);
    let whole = fs::read(folder.path("whole.safetensors")).unwrap();
    for (name, content) in [
        ("head.safetensors", u64::MAX.to_le_bytes().to_vec()),
        ("cut.safetensors", whole[..whole.len() - 1].to_vec()),
        ("long.safetensors", [&whole[..], &[0]].concat()),
    ] {
        folder.write(name, &content);
    }
    // Rows of bytes, and files that state something.
    let mut nan_scale = fused.clone();
    nan_scale[2 * (DIM + 8) + DIM..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    folder.tensors("nan-scale", &[("weight", Dtype::U8, &[ROWS, DIM + 8], &nan_scale)]);
    let stating = |name: &str, dtype, width, data: &[u8], texts: &[(&str, &str)]| {
        let views = [("weight", TensorView::new(dtype, vec![ROWS, width], data).unwrap())];
        let texts = texts.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        folder.write(name, &safetensors::serialize(views, Some(texts)).unwrap())
    };
    for (name, text) in [("dim-9", ("dim", "9")), ("dim-16", ("dim", "16")), ("int9", ("precision", "int9"))] {
        stating(name, Dtype::U8, DIM + 8, &fused, &[text]);
    }
    let plain = bytes(&rows());
    let dim_9 = |name: &str, format| stating(name, Dtype::F32, DIM, &plain, &[("format", format), ("dim", "9")]);
    dim_9("floats-9.safetensors", "hotrow safetensors");
    // What another program means by it is unknown.
    folder.import(&dim_9("foreign.safetensors", "pt"), &[]);
    let stated = folder.import(&fixture("rows.npy"), &["--precision", "int4"]);
    let stated = folder.export(&stated, "fused", &[]);
    folder.write("stated.safetensors", &stated);
    let like = folder.import(&fixture("rows.npy"), &["--precision", "int4", "--cache-rows", "8"]);
    let like = folder.write("like.safetensors", &fs::read(like).unwrap());
    golden::refused("import", folder.0.path());
    // The same files without their faults are imported.
    folder.import(&folder.path("one.safetensors"), &[]);
    folder.import(&folder.path("whole.safetensors"), &["--format", "fused", "--precision", "int8"]);
    folder.import(&folder.path("stated.safetensors"), &["--format", "fused", "--like", &like]);
}

#[test]
fn bad_input_of_export_is_told_by_name() {
    let folder = Folder::new();
    let trained = fs::read(trained(&folder, Precision::Int4).1).unwrap();
    for (name, precision, dim, rows) in [
        ("odd", "int4", 6, &[0.5; 12][..]),
        ("large", "int4", 4, &[1.0, 2.0, 3.0, 4.0, 9e4, 9e4, 9e4, 9.1e4]),
        ("steep", "int2", 8, &[0.0, 3e5, 1e5, 2e5, 0.0, 3e5, 1e5, 2e5]),
        ("half", "fp16", 4, &[0.5; 8]),
    ] {
        let array = npy("<f4", &format!("({}, {dim})", rows.len() / dim), &bytes(rows));
        let table = folder.import(&folder.write("table.npy", &array), &["--precision", precision]);
        fs::rename(table, folder.path(name)).unwrap();
    }
    folder.write("trained", &trained);
    folder.write("cut", &trained[..trained.len() - 1]);
    fs::copy(fixture("torch.safetensors"), folder.path("torch.safetensors")).unwrap();
    golden::refused("export", folder.0.path());
}

/// Rows of numbers that every type holds exactly, but for 1/3.
const NUMBERS: [f32; 6] = [1.0, -0.5, 3.140_625, 0.0, 65_280.0, -0.000_061_035_156];

#[test]
fn floats_of_every_type_and_order_are_converted() {
    let folder = Folder::new();
    let sixteen = |of: fn(f32) -> Vec<u8>| NUMBERS.into_iter().flat_map(of).collect::<Vec<_>>();
    let wide: Vec<u8> = NUMBERS.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect();
    let turned = |bytes: &[u8], each| bytes.chunks(each).flat_map(|x| x.iter().rev().copied()).collect::<Vec<u8>>();
    let columns: Vec<f32> = [0, 3, 1, 4, 2, 5].iter().map(|&at| NUMBERS[at]).collect();
    let array = |kind, data: &[u8]| npy(kind, "(2, 3)", data);
    let by_columns = |kind, shape: &str, data: &[u8]| {
        let file = npy(kind, shape, data);
        let at = file.windows(6).position(|text| text == b"False,").unwrap();
        [&file[..at], b"True, ", &file[at + 6..]].concat()
    };
    let fortran = |kind, data: &[u8]| by_columns(kind, "(2, 3)", data);
    let (plain, columns) = (bytes(&NUMBERS), bytes(&columns));
    let saved = |name, dtype, data: &[u8]| folder.tensors(name, &[("weight", dtype, &[2, 3], data)]);
    let arrays = [
        ("f2.npy", array("<f2", &sixteen(fp16)), "FP16, which FP32 holds exactly"),
        ("f8.npy", array("<f8", &wide), "FP64, rounded to FP32"),
        ("big.npy", array(">f4", &turned(&plain, 4)), "big-endian"),
        ("columns.npy", fortran("<f4", &columns), "Fortran order"),
        ("all.npy", fortran(">f4", &turned(&columns, 4)), "big-endian, Fortran order"),
        ("big8.npy", array(">f8", &turned(&wide, 8)), "FP64, rounded to FP32, big-endian"),
    ];
    let files = arrays.map(|(name, file, note)| (folder.write(name, &file), note));
    let tensors = [
        (saved("bf16.safetensors", Dtype::BF16, &sixteen(bf16)), "BF16, which FP32 holds exactly"),
        (saved("f16.safetensors", Dtype::F16, &sixteen(fp16)), "FP16, which FP32 holds exactly"),
        (saved("f64.safetensors", Dtype::F64, &wide), "FP64, rounded to FP32"),
    ];
    for (file, note) in files.into_iter().chain(tensors) {
        let out = folder.path("converted");
        let (_, stderr) = outcome(&["import", &file, "--out", &out], 0);
        assert_eq!(values(&out), NUMBERS, "{file}");
        assert!(stderr.contains(&format!(": converted from {note}: ")) && stderr.lines().count() == 1, "{stderr}");
    }
    // Read as what it is not, each comes out as something else, and FP32 rows need no note.
    for wrong in [array("<f4", &columns), array("<f4", &turned(&plain, 4))] {
        assert_ne!(values(&folder.import(&folder.write("wrong.npy", &wrong), &["--rounding", "nearest"])), NUMBERS);
    }
    let f4 = folder.write("f4.npy", &array("<f4", &plain));
    let (_, stderr) = outcome(&["import", &f4, "--out", &folder.path("x")], 0);
    assert_eq!(stderr, "");
    // FP64 is rounded. A larger table in Fortran order is read in several blocks.
    let third = folder.write("third.npy", &npy("<f8", "(1, 1)", &(1.0 / 3.0_f64).to_le_bytes()));
    assert_eq!(values(&folder.import(&third, &[])), [1.0_f32 / 3.0]);
    let large: Vec<f32> = (0..50).flat_map(|column| (0..1000).map(move |row| (50 * row + column) as f32)).collect();
    let large = folder.write("large.npy", &by_columns("<f4", "(1000, 50)", &bytes(&large)));
    assert!(values(&folder.import(&large, &[])).into_iter().eq((0..50_000).map(|at| at as f32)));
}

#[test]
fn parts_are_read_by_their_list() {
    let folder = Folder::new();
    let table = |first: u8| bytes(&[f32::from(first), 2.0, 3.0, 4.0]);
    for (name, tensor, [first, old]) in [("1.safetensors", "user", [1, 9]), ("2.safetensors", "item", [5, 7])] {
        let (first, old) = (table(first), table(old));
        folder.tensors(name, &[(tensor, Dtype::F32, &[2, 2], &first), ("old", Dtype::F32, &[2, 2], &old)]);
    }
    let list = r#"{"metadata":{},"weight_map":{"user":"1.safetensors","item":"2.safetensors","old":"2.safetensors"}}"#;
    let list = folder.write("m.safetensors.index.json", list.as_bytes());
    let found = values(&folder.import(&list, &["--tensor", "item,user,old"]));
    assert_eq!(bytes(&found), [table(5), table(1), table(7)].concat());
    // Parts that hold nothing wanted need not be there.
    let some =
        folder.write("s.safetensors.index.json", br#"{"weight_map":{"user":"1.safetensors","x":"gone.safetensors"}}"#);
    assert_eq!(bytes(&values(&folder.import(&some, &["--tensor", "user"]))), table(1));
    // A name may have a comma; others are named one by one.
    let [ab, b] = &[table(1), table(5)];
    let tensor = |name| (name, Dtype::F32, &[2_usize, 2][..], &(if name == "a,b" { ab } else { b })[..]);
    let commas = folder.tensors("c.safetensors", &["a,b", "a", "b"].map(tensor));
    for (options, wanted) in [
        (&["--tensor", "a,b,b"][..], [&ab[..], b].concat()),
        (&["--tensor", "b,a,b"], [&b[..], ab].concat()),
        (&["--tensor", "a", "--tensor", "b"], [&b[..], b].concat()),
    ] {
        assert_eq!(bytes(&values(&folder.import(&commas, options))), wanted, "{options:?}");
    }
    let (_, stderr) = outcome(&["import", &commas, "--tensor", "a,b", "--out", &folder.path("x")], 0);
    assert!(stderr.contains("\"a,b\" is taken as one tensor; for the others write --tensor a --tensor b"), "{stderr}");
    // Without names, all tensors of all parts are listed.
    let (_, stderr) = outcome(&["import", &list, "--out", &folder.path("x")], 2);
    assert!(stderr.contains(": user, item, old; name the tables"), "{stderr}");
}

/// A zip file of torch, a pickle as torch wrote it before, and a bare pickle.
#[test]
fn pickles_of_torch_are_named_with_the_lines_that_convert_them() {
    let folder = Folder::new();
    let zip = [&b"PK\x03\x04\0\0\x08\x08\0\0"[..], &[0; 16], b"\x10\0\x12\0archive/data.pkl", &[0; 60]].concat();
    let old = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.".to_vec();
    let zips = ["model.pt", "pytorch_model.bin", "wrong.safetensors"].map(|name| (name, &zip));
    for (name, content) in zips.into_iter().chain(["old.pth", "wrong.npy"].map(|name| (name, &old))) {
        let file = folder.write(name, content);
        let (_, stderr) = outcome(&["import", &file, "--out", &folder.path("x")], 1);
        let lines: Vec<&str> = stderr.lines().collect();
        assert!(lines[0].contains("found a pickle as torch saves it") && lines.len() == 3, "{name}: {stderr}");
        let load = format!("{name}\", map_location=\"cpu\", weights_only=True)");
        assert!(lines[1].starts_with("import torch, safetensors.torch; s = torch.load(") && lines[1].ends_with(&load));
        let save = "safetensors.torch.save_file({k: v.clone().contiguous() for k, v in s.get(\"state_dict\", ";
        assert!(lines[2].starts_with(save) && lines[2].ends_with(".safetensors\")"), "{stderr}");
    }
}

/// Rows of `dim` INT8 codes, and their values: scale and bias by `number`, before the codes or behind them.
fn coded(rows: usize, dim: usize, first: bool, number: fn(f32) -> Vec<u8>, padding: usize) -> (Vec<u8>, Vec<f32>) {
    let (mut all, mut values) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let codes: Vec<u8> = (0..dim).map(|at| ((row * 97 + at * 61) % 251) as u8).collect();
        let scale = f32::from_bits(0x3b80_0000 + ((row as u32 * 0x9e37) & 0x3ffff));
        let bias = -0.5 - row as f32 / 512.0;
        let numbers = [number(scale), number(bias)].concat();
        let parts = if first { [&numbers[..], &codes] } else { [&codes[..], &numbers] };
        all.extend(parts.concat());
        all.extend(std::iter::repeat_n(0, padding));
        values.extend(codes.iter().map(|&code| f32::from(code) * scale + bias));
    }
    (all, values)
}

fn fp32(x: f32) -> Vec<u8> {
    x.to_le_bytes().to_vec()
}

fn fp16(x: f32) -> Vec<u8> {
    half_from_f32(x, Rounding::Nearest, || 0).to_le_bytes()[..2].to_vec()
}

fn bf16(x: f32) -> Vec<u8> {
    x.to_le_bytes()[2..].to_vec()
}

#[test]
fn scale_and_bias_of_another_type_are_recognised_or_refused() {
    let folder = Folder::new();
    let file = |name: &str, data: &[u8], rows: usize| {
        folder.tensors(name, &[("weight", Dtype::U8, &[rows, data.len() / rows], data)])
    };
    let import = |data: &[u8], rows, options: &str| {
        let (path, out) = (file("rows", data, rows), folder.path("out"));
        let common = ["import", &path, "--out", &out, "--precision", "int8"];
        let (_, stderr) = outcome(&[&common, &words(options)[..]].concat(), 0);
        (values(&out), stderr)
    };
    let said = "rows have FP32 as scale and bias, since no other reading fits: 16 floats each";
    let half = "rows have FP16 as scale and bias";
    type Number = fn(f32) -> Vec<u8>;
    for (rows, dim, padding, number, off, options, note) in [
        // FP32 in rows of TBE, padded or not, with the dim named or not.
        (40, 16, 0, fp32 as Number, 1e-6, "--format tbe", said),
        (40, 16, 0, fp32, 1e-6, "--format tbe --dim 16", said),
        (40, 16, 8, fp32, 1e-6, "--format tbe --dim 16", said),
        (4, 16, 0, fp32, 1e-6, "--format tbe --dim 16", said),
        // FP16 as FBGEMM writes it needs no note: exact, padded, and of other dims.
        (40, 16, 0, fp16, 0.01, "--format tbe", ""),
        (40, 16, 0, fp16, 0.01, "--format tbe --dim 16", ""),
        (40, 10, 2, fp16, 0.01, "--format tbe --dim 10", ""),
        (40, 20, 8, fp16, 0.01, "--format tbe --dim 20", ""),
        (1, 16, 12, fp16, 0.01, "--format tbe --dim 16", ""),
        // Fused rows the other way round.
        (40, 16, 0, fp16, 0.01, "--format fused", half),
        (40, 16, 0, fp16, 0.01, "--format fused --dim 16", half),
        (40, 16, 0, fp32, 1e-6, "--format fused", ""),
    ] {
        let (data, wanted) = coded(rows, dim, options.contains("tbe"), number, padding);
        let (found, stderr) = import(&data, rows, options);
        let near = found.iter().zip(&wanted).all(|(x, y)| (x - y).abs() <= off);
        assert!(found.len() == wanted.len() && near, "{rows} rows, {padding} B of padding, {options}");
        assert!(stderr.contains(note) && stderr.is_empty() == note.is_empty(), "{options}: {stderr}");
    }
    // A plain scale of 2^-7 with a bias of -1.
    let codes = [9, 200, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7];
    let plain = [&fp32(2f32.powi(-7))[..], &fp32(-1.0), &codes].concat().repeat(4);
    for options in ["--format tbe", "--format tbe --dim 16"] {
        let (found, stderr) = import(&plain, 4, options);
        assert!(found[..2] == [9.0 / 128.0 - 1.0, 200.0 / 128.0 - 1.0] && stderr.contains(said), "{stderr}");
    }
    // What fits no reading, or two, is refused: BF16, a dim that is wrong, padding that is not zero, one row of FP32.
    let mut soiled = coded(40, 10, true, fp16, 2).0;
    soiled[16 * 7 + 15] = 1;
    let one = [&0x3b80_2000_u32.to_le_bytes()[..], &fp32(-0.5), &[7; 16]].concat();
    for (name, number, padding) in [("bf16", bf16 as Number, 0), ("bf16-padded", bf16, 12), ("fp16", fp16, 0)] {
        file(name, &coded(40, 16, true, number, padding).0, 40);
    }
    file("bf16-fused", &coded(40, 16, false, bf16, 0).0, 40);
    file("padded", &coded(40, 16, true, fp32, 8).0, 40);
    file("padded-half", &coded(40, 20, true, fp16, 8).0, 40);
    // Biases of about 1.5 steps in INT2, and of thousands in INT8: FP16 of the same is read.
    for (name, steps) in [("int2", 1.5_f32), ("far", -3000.0)] {
        let rows = |number: Number| -> Vec<u8> {
            let scales = (0..40).map(|row| 0.01 + row as f32 / 4000.0);
            scales.flat_map(|scale| [&number(scale)[..], &number(-steps * scale), &[27; 16]].concat()).collect()
        };
        file(&format!("bf16-{name}"), &rows(bf16), 40);
        let precision = if name == "far" { "int8" } else { "int2" };
        folder.import(&file(&format!("fp16-{name}"), &rows(fp16), 40), &["--format", "tbe", "--precision", precision]);
    }
    file("soiled", &soiled, 40);
    file("one", &one, 1);
    golden::refused("import-numbers", folder.0.path());
    let (found, stderr) = import(&one, 1, "--format tbe --dim 16");
    assert!(found.len() == 16 && stderr.contains(said), "{stderr}");
}
