//! Filling tables: the same records from every source, and never the whole table in FP32.

use std::{fs, path::Path};

use hotrow::{
    CpuGroup, Error, FileStore, GroupConfig, Init, OptimizerKind, Precision, SharedStore, Source, Store, f32_file,
    internals::RamStore, npy_file, prelude::*, store,
};

use hotrow_harness::{child, data::place};

use super::config;

fn records(store: &dyn Store) -> Vec<u8> {
    let mut all = vec![0; store.rows() as usize * store.stride() as usize];
    store.read_range(0, &mut all).unwrap();
    all
}

fn filled(config: &GroupConfig, source: Option<&dyn Source>) -> Result<RamStore, Error> {
    let mut made = RamStore::new(config)?;
    let result = store::fill(&mut made, config, source);
    assert_eq!(made.filled(), result.is_ok());
    result.map(|()| made)
}

/// The records equal those of a CPU group bit for bit, in RAM and in a file.
#[test]
fn as_a_group() {
    let inits = [
        Init::Constant(0.0),
        Init::Constant(0.3),
        Init::Uniform { low: -1.0, high: 1.0 },
        Init::Normal { mean: 0.1, std: 0.2 },
    ];
    for precision in Precision::ALL {
        for init in inits {
            let mut config = GroupConfig::new(&[3000, 1000], 18).with_precision(precision).with_init(init).with_seed(3);
            config.optimizer.kind = OptimizerKind::AdaGrad;
            let group = CpuGroup::new(config.clone()).unwrap().snapshot().unwrap();
            let ram = filled(&config, None).unwrap();
            let words: &[u8] = bytemuck::cast_slice(&group.records);
            assert!(records(&ram) == words, "{precision:?} {init:?}");
            let folder = tempfile::tempdir().unwrap();
            let mut file = FileStore::create(folder.path().join("table"), &config).unwrap();
            store::fill(&mut file, &config, None).unwrap();
            assert!(records(&file) == words, "{precision:?} {init:?}");
            if init != Init::Constant(0.0) {
                let other = config.with_seed(4);
                let same = init == Init::Constant(0.3) && precision != Precision::Fp16;
                assert_eq!(records(&filled(&other, None).unwrap()) == words, same, "{precision:?} {init:?}");
            }
        }
    }
}

fn npy(path: &Path, kind: &str, order: &str, shape: &str, bytes: &[u8]) {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let length = (header.len() as u16).to_le_bytes();
    fs::write(path, [b"\x93NUMPY\x01\x00".as_slice(), &length, header.as_bytes(), bytes].concat()).unwrap();
}

#[test]
fn from_rows_of_any_kind() {
    let config = GroupConfig::new(&[7000, 123], 10).with_precision(Precision::Fp32);
    let values: Vec<f32> = (0..71_230).map(|i| (i as f32).sin()).collect();
    let folder = tempfile::tempdir().unwrap();
    let (raw, array) = (folder.path().join("raw"), folder.path().join("array"));
    fs::write(&raw, bytemuck::cast_slice(&values)).unwrap();
    npy(&array, "<f4", "False", "(7123, 10)", bytemuck::cast_slice(&values));
    let function = |first: u32, dim: usize, out: &mut [f32]| {
        for (i, x) in (first as usize * dim..).zip(out) {
            *x = (i as f32).sin();
        }
        Ok(())
    };
    let sources: [&dyn Source; 5] =
        [&values, &values.as_slice(), &function, &f32_file(&raw).unwrap(), &npy_file(&array).unwrap()];
    let rows: Vec<u32> = (0..7123).collect();
    for (k, source) in sources.into_iter().enumerate() {
        let shared = SharedStore::new(filled(&config, Some(source)).unwrap());
        assert!(shared.read_rows(&config, &rows).unwrap() == values, "source {k}");
        let mut group = CpuGroup::filled(config.clone(), source).unwrap();
        assert!(group.read_rows(&rows).unwrap() == values, "source {k}");
    }
    // The comparison must notice one different value.
    let mut other = values.clone();
    other[71_229] += 1.0;
    let shared = SharedStore::new(filled(&config, Some(&other)).unwrap());
    assert!(shared.read_rows(&config, &rows).unwrap() != values);
}

#[test]
fn of_another_shape() {
    let config = config();
    let (folder, path) = place();
    let refused = |source: &dyn Source| match filled(&config, Some(source)) {
        Err(Error::Store { what: "shape", wanted, found, .. }) => (wanted, found),
        other => panic!("{other:?}"),
    };
    let short = vec![0f32; 1199];
    let length = Error::Length { what: "source", wanted: 1200, found: 1199 };
    assert_eq!(filled(&config, Some(&short)).unwrap_err(), length);
    assert_eq!(filled(&config, Some(&short.as_slice())).unwrap_err(), length);
    assert_eq!(CpuGroup::filled(config.clone(), &short).unwrap_err(), length);
    fs::write(&path, [0; 4804]).unwrap();
    assert_eq!(refused(&f32_file(&path).unwrap()), ("4800 bytes".into(), "4804 bytes".into()));
    npy(&path, "<f4", "False", "(12, 100)", &[0; 4800]);
    assert_eq!(refused(&npy_file(&path).unwrap()), ("[100, 12]".into(), "[12, 100]".into()));
    let foreign = |kind, order| {
        npy(&path, kind, order, "(100, 12)", &[0; 4800]);
        match npy_file(&path) {
            Err(Error::Store { what: "format", found, .. }) => found,
            other => panic!("{other:?}"),
        }
    };
    assert!(foreign("<f8", "False").contains("<f8"));
    assert!(foreign(">f4", "False").contains(">f4"));
    assert!(foreign("<f4", "True").contains("Fortran"));
    fs::write(&path, "no array").unwrap();
    refuses!(npy_file(&path), Error::Store { what: "opening", .. });
    // Dimensions whose product has more than 64 bits, and no shape.
    for shape in ["(4294967296, 4294967296)", "(0, 4294967296, 4294967296)", "(4611686018427387904,)", "(x,)", "7"] {
        npy(&path, "<f4", "False", shape, &[]);
        refuses!(npy_file(&path), Error::Store { what: "opening", .. }, "{shape}");
    }
    // Found by the fuzz targets: brackets in brackets, and a header of 4 GiB.
    for header in [
        &[&b"\x93NUMPY\x01\0\0\x0f"[..], &[b'('; 0x0f00]].concat()[..],
        b"\x93NUMPY\x02\0\xff\xff\xff\xff{'shape': (1,)}",
    ] {
        fs::write(&path, header).unwrap();
        refuses!(npy_file(&path), Error::Store { what: "opening", .. });
    }
    refuses!(f32_file(&folder.path().join("none")), Error::Store { what: "opening", .. });
    // An array with fewer values than its header promises.
    npy(&path, "<f4", "False", "(100, 12)", &[0; 4000]);
    refuses!(filled(&config, Some(&npy_file(&path).unwrap())), Error::Source { .. });
}

/// The error names the first bad row, whichever thread finds a bad row first.
#[test]
fn rows_that_are_not_finite() {
    let config = GroupConfig::new(&[50_000], 12);
    let good = vec![0.5f32; 600_000];
    for (wrong, said) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut values = good.clone();
        for at in [40_000 * 12, 777 * 12 + 5, 1000 * 12] {
            values[at] = wrong;
        }
        let wanted = |error: Error| match error {
            Error::Source { row, found, .. } => assert_eq!((row, found), (777, format!("{said} at element 5"))),
            other => panic!("{other:?}"),
        };
        wanted(filled(&config, Some(&values)).unwrap_err());
        wanted(CpuGroup::filled(config.clone(), &values).unwrap_err());
    }
    let mut values = good.clone();
    (values[36], values[37]) = (f32::MAX, f32::MIN);
    let error = filled(&config, Some(&values)).unwrap_err();
    assert!(matches!(&error, Error::Source { row: 3, found, .. } if found.contains("apart")), "{error}");
    let halves = config.clone().with_precision(Precision::Fp16);
    assert!(filled(&halves, Some(&values)).is_ok(), "FP16 has no scale to overflow, and saturates");
    assert!(filled(&config, Some(&good)).is_ok());
    // The error of a source is passed on.
    let own = Error::Order { call: "rows", wanted: "a source", found: "none" };
    let failing = |first: u32, _: usize, _: &mut [f32]| if first > 20_000 { Err(own.clone()) } else { Ok(()) };
    assert_eq!(filled(&config, Some(&failing)).unwrap_err(), own);
}

#[test]
fn stores_of_another_shape() {
    let mut small = RamStore::new(&GroupConfig::new(&[99], 12)).unwrap();
    let error = store::fill(&mut small, &config(), None).unwrap_err();
    let Error::Store { what: "shape", wanted, found, .. } = error else { panic!("{error}") };
    assert_eq!((&*wanted, &*found), ("100 records of 20 bytes", "99 records of 20 bytes"));
    let huge = GroupConfig::new(&[u32::MAX - 1], 1 << 24);
    refuses!(RamStore::new(&huge), Error::OutOfMemory { what: "records", .. });
}

#[test]
fn initial_values_that_cannot_be() {
    for init in [
        Init::Normal { mean: f32::NAN, std: 1.0 },
        Init::Normal { mean: 0.0, std: -1.0 },
        Init::Normal { mean: 0.0, std: f32::INFINITY },
        Init::Normal { mean: 0.0, std: 1e38 },
    ] {
        refuses!(config().with_init(init).check(), Error::Config { field: "init", .. }, "{init:?}");
    }
    assert!(config().with_init(Init::Normal { mean: 1.0, std: 0.0 }).check().is_ok());
}

/// A table of 128 MiB, 950 MiB in FP32, which is never in memory as a whole.
#[cfg(target_os = "linux")]
mod memory {
    use super::*;

    const LIMIT: u64 = 256 << 20;

    fn large() -> GroupConfig {
        GroupConfig::new(&[1_864_135], 128).with_precision(Precision::Int4)
    }

    fn source(first: u32, _: usize, out: &mut [f32]) -> Result<(), Error> {
        for (i, x) in out.iter_mut().enumerate() {
            *x = (first as usize + i) as f32;
        }
        Ok(())
    }

    #[test]
    fn never_in_fp32() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["of_ram", "of_a_file", "of_a_group"] {
            child::passed(&format!("store::fill::memory::{name}"), &folder.path().join("table"), None);
        }
    }

    #[test]
    #[ignore = "a child: run by never_in_fp32"]
    fn of_ram() {
        let store = filled(&large(), Some(&source)).unwrap();
        let table = u64::from(store.rows()) * store.stride();
        assert!((table..table + LIMIT).contains(&child::memory("VmHWM")), "{} for {table}", child::memory("VmHWM"));
        // The companion: the measurement shows a table in FP32.
        let whole = vec![1f32; store.rows() as usize * 128];
        assert!(whole.len() as u64 * 4 + table < child::memory("VmHWM"));
        assert!(child::memory("VmHWM") > table + LIMIT);
    }

    #[test]
    #[ignore = "a child: run by never_in_fp32"]
    fn of_a_file() {
        let mut file = FileStore::create(child::path(), &large()).unwrap();
        store::fill(&mut file, &large(), Some(&source)).unwrap();
        assert!(child::memory("VmHWM") < LIMIT, "{}", child::memory("VmHWM"));
    }

    #[test]
    #[ignore = "a child: run by never_in_fp32"]
    fn of_a_group() {
        let mut group = CpuGroup::filled(large(), &source).unwrap();
        let table = group.layout().table_bytes();
        assert!(group.read_rows(&[5]).is_ok());
        assert!((table..table + LIMIT).contains(&child::memory("VmHWM")), "{} for {table}", child::memory("VmHWM"));
    }
}
