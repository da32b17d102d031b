//! Files of matrices, read in pieces: safetensors, in one file or in parts, and numpy's arrays.

use crate::fused::half;
use ::safetensors::Dtype;
use anyhow::{Context as _, bail};
use hotrow::internals::safetensors::{self, Names};
use hotrow::{Error, Source};
use hotrow_report::failure::plain;
use hotrow_report::foreign;
use npyz::{DType, NpyHeader, Order, TypeChar};
use serde::Deserialize;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The types whose numbers become FP32.
pub(crate) const FLOATS: [Dtype; 4] = [Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F64];

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    /// The file, and its byte, at which the tensor begins.
    file: usize,
    begin: u64,
    big_endian: bool,
    /// Columns lie one behind the other (Fortran order), not rows.
    by_columns: bool,
}

/// A tensor of two axes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) name: String,
    pub(crate) shape: [u64; 2],
    tensor: Tensor,
}

impl Matrix {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.shape[1] * self.each()
    }

    /// Bytes of a number.
    fn each(&self) -> u64 {
        self.tensor.dtype.bitsize() as u64 / 8
    }

    fn converted(&self) -> Option<String> {
        let Tensor { dtype, big_endian, by_columns, .. } = self.tensor;
        let kind = match dtype {
            Dtype::F32 => "",
            Dtype::F64 => "FP64, rounded to FP32",
            Dtype::F16 => "FP16, which FP32 holds exactly",
            _ => "BF16, which FP32 holds exactly",
        };
        let all = [kind, if big_endian { "big-endian" } else { "" }, if by_columns { "Fortran order" } else { "" }];
        let all: Vec<&str> = all.into_iter().filter(|what| !what.is_empty()).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// What is converted when matrices are read as FP32 rows: a line for each kind.
pub(crate) fn converted(matrices: &[Matrix]) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<String>)> = Vec::new();
    for (matrix, kind) in matrices.iter().filter_map(|matrix| Some((matrix, matrix.converted()?))) {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(matrix.name.clone()),
            None => kinds.push((kind, vec![matrix.name.clone()])),
        }
    }
    kinds.iter().map(|(kind, names)| format!("converted from {kind}: {}", listed(names))).collect()
}

/// Files that are open for reading, also from several threads.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    path: PathBuf,
    files: Vec<Mutex<File>>,
    /// In order of the files.
    tensors: Vec<Tensor>,
    texts: HashMap<String, String>,
    /// The tensors that were asked for by name, and what was concluded.
    pub(crate) chosen: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// The list of a model's parts.
#[derive(Deserialize)]
struct Index<M> {
    weight_map: M,
}

/// A fault of a header, as this command says it.
fn of_header(error: Error) -> anyhow::Error {
    match error {
        Error::Checkpoint { path, wanted, found, remedy, .. } => {
            anyhow::anyhow!("{path}: wanted {wanted}, found {}; {remedy}", plain(&found))
        }
        error => error.into(),
    }
}

fn readable(path: &Path) -> impl Fn() -> String {
    move || format!("{}: wanted a file that can be read; check the path and its permissions", path.display())
}

/// Opens a file unless it is of a known other format. Returns its length and its first bytes, too.
pub(crate) fn open(path: &Path) -> anyhow::Result<(File, u64, Vec<u8>)> {
    let mut start = Vec::new();
    let mut file = File::open(path).with_context(readable(path))?;
    let length = file.metadata().with_context(readable(path))?.len();
    file.by_ref().take(foreign::NPY_HEADER).read_to_end(&mut start).with_context(readable(path))?;
    let (shown, is_own) = (path.display(), foreign::is_safetensors(&start) || start.starts_with(foreign::NPY));
    if !is_own && foreign::is_pickle(&start) {
        let to = path.with_extension("safetensors");
        bail!(
            "{shown}: wanted .npy or .safetensors, found a pickle as torch saves it, which may run any program; convert it in Python with the two lines\n\
             import torch, safetensors.torch; s = torch.load({:?}, map_location=\"cpu\", weights_only=True)\n\
             safetensors.torch.save_file({{k: v.clone().contiguous() for k, v in s.get(\"state_dict\", s.get(\"model_state_dict\", s)).items() \
             if torch.is_tensor(v)}}, {:?})",
            path.to_string_lossy(),
            to.to_string_lossy()
        );
    }
    match foreign::format(&start) {
        Some((found, remedy)) if !is_own => bail!("{shown}: wanted .npy or .safetensors, found {found}; {remedy}"),
        _ => Ok((file, length, start)),
    }
}

impl Tensors {
    /// Opens a file of safetensors or the list of its parts, of which those with `wanted` tensors or all, and checks headers and lengths.
    pub(crate) fn open(path: &Path, wanted: &[String]) -> anyhow::Result<Self> {
        let mut all = Self { path: path.into(), ..Self::default() };
        if path.extension().is_none_or(|ending| ending != "json") {
            all.add(path, |_| true)?;
            all.choose(wanted, &all.names());
            return Ok(all);
        }
        open(path)?;
        let shown = path.display();
        let text = std::fs::read(path).with_context(readable(path))?;
        let refused = |error: serde_json::Error| {
            let found = plain(&error.to_string());
            anyhow::anyhow!(
                "{shown}: wanted the list of a model's parts with its weight_map, found {found}; name the file model.safetensors.index.json"
            )
        };
        serde_json::from_slice::<Index<Names>>(&text).map_err(refused)?;
        let mut index: Index<BTreeMap<String, String>> = serde_json::from_slice(&text).map_err(refused)?;
        all.choose(wanted, &index.weight_map.keys().cloned().collect::<Vec<_>>());
        let wanted = all.chosen.clone();
        if index.weight_map.is_empty() {
            bail!("{shown}: wanted the parts of a model, found an empty weight_map; get or write the file again");
        }
        if let Some(name) = wanted.iter().find(|name| !index.weight_map.contains_key(*name)) {
            let all: Vec<String> = index.weight_map.into_keys().collect();
            bail!("{shown}: wanted a tensor {}, found {}; name one of these", quoted(name), listed(&all));
        }
        index.weight_map.retain(|name, _| wanted.is_empty() || wanted.contains(name));
        let mut parts: Vec<&String> = index.weight_map.values().collect();
        parts.sort_unstable();
        parts.dedup();
        for part in parts {
            let of = |name: &str| index.weight_map.get(name) == Some(part);
            let is_name = !part.is_empty() && plain(part) == *part;
            if !is_name || !Path::new(part).components().all(|piece| matches!(piece, Component::Normal(_))) {
                bail!("{shown}: wanted parts in its folder, found {part:?}; put the part there and into the list");
            }
            let file = path.with_file_name(part);
            all.add(&file, of).with_context(|| format!("{shown}: wanted its part {part} beside it"))?;
        }
        let missing = |(name, _): &(&String, &String)| all.tensors.iter().all(|tensor| tensor.name != **name);
        if let Some((name, part)) = index.weight_map.iter().find(missing) {
            bail!("{shown}: wanted tensor {} in its part {part}, found none there; get both files again", quoted(name));
        }
        Ok(all)
    }

    /// Opens an array of numpy's.
    pub(crate) fn npy(path: &Path) -> anyhow::Result<Self> {
        let (file, length, start) = open(path)?;
        let shown = path.display();
        let refused = |(found, remedy): (String, _)| {
            anyhow::anyhow!("{shown}: wanted an array of floats in .npy, found {found}; {remedy}")
        };
        let shape = foreign::npy_shape(&start).map_err(refused)?;
        let mut rest = &start[..];
        let header = NpyHeader::from_reader(&mut rest).map_err(|error| refused((error.to_string(), foreign::SAVE)))?;
        let begin = (start.len() - rest.len()) as u64;
        let descr = header.dtype().descr();
        let mut types = [Dtype::F16, Dtype::F32, Dtype::F64].into_iter();
        let found = match header.dtype() {
            DType::Plain(kind) if kind.type_char() == TypeChar::Float => {
                types.find(|dtype| dtype.bitsize() as u64 / 8 == kind.size_field())
            }
            _ => None,
        };
        let Some(dtype) = found else {
            bail!("{shown}: wanted floats of 16, 32 or 64 bits, found type {descr}; save rows.astype('f4')");
        };
        let count: u128 = shape.iter().map(|&axis| u128::from(axis)).product();
        let wanted = u128::from(begin) + count * (dtype.bitsize() as u128 / 8);
        safetensors::check_length(path, length, wanted).map_err(of_header)?;
        let tensor = Tensor {
            name: path.file_name().unwrap_or_default().to_string_lossy().into(),
            dtype,
            by_columns: header.order() == Order::Fortran && shape.len() > 1,
            shape,
            file: 0,
            begin,
            big_endian: descr.contains('>'),
        };
        Ok(Self { path: path.into(), files: vec![Mutex::new(file)], tensors: vec![tensor], ..Self::default() })
    }

    /// Chooses the tensors that options name: each has a name, or several with commas between them, of which the longest that is there is taken.
    fn choose(&mut self, options: &[String], names: &[String]) {
        for option in options {
            let mut pieces = &option.split(',').collect::<Vec<_>>()[..];
            while !pieces.is_empty() {
                let is_one = |count: &usize| names.contains(&pieces[..*count].join(","));
                let (these, rest) = pieces.split_at((1..=pieces.len()).rev().find(is_one).unwrap_or(1));
                let name = these.join(",");
                if these.len() > 1 && these.iter().all(|piece| names.iter().any(|name| name == piece)) {
                    let each = these.join(" --tensor ");
                    self.notes.push(format!("{name:?} is taken as one tensor; for the others write --tensor {each}"));
                }
                self.chosen.push(name);
                pieces = rest;
            }
        }
    }

    /// Adds the tensors of a file that are wanted by name.
    fn add(&mut self, path: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let (mut file, ..) = open(path)?;
        file.rewind().with_context(readable(path))?;
        let (head, metadata) = safetensors::read(path, &mut file).map_err(of_header)?;
        let at = self.files.len();
        self.files.push(Mutex::new(file));
        for name in metadata.offset_keys().into_iter().filter(|name| wanted(name)) {
            let Some(info) = metadata.info(&name) else { continue };
            self.tensors.push(Tensor {
                dtype: info.dtype,
                shape: info.shape.iter().map(|&axis| axis as u64).collect(),
                file: at,
                begin: (head.len() + info.data_offsets.0) as u64,
                big_endian: false,
                by_columns: false,
                name,
            });
        }
        let texts = metadata.metadata().iter().flatten();
        self.texts.extend(texts.map(|(field, text)| (field.clone(), plain(text))));
        Ok(())
    }

    /// A text beside the tensors.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.texts.get(field).map(String::as_str)
    }

    /// The names of all tensors, in order of the files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tensors.iter().map(|tensor| tensor.name.clone()).collect()
    }

    /// The tensor of this name, which must be a matrix of one of these types.
    pub(crate) fn matrix(&self, name: &str, types: &[Dtype]) -> anyhow::Result<Matrix> {
        let path = self.path.display();
        let Some(tensor) = self.tensors.iter().find(|tensor| tensor.name == name) else {
            bail!("{path}: wanted a tensor {}, found {}; name one of these", quoted(name), listed(&self.names()));
        };
        let named = quoted(name);
        if !types.contains(&tensor.dtype) {
            let wanted: Vec<String> = types.iter().map(|dtype| format!("{dtype:?}")).collect();
            let remedy = match tensor.dtype {
                Dtype::U8 => "name another tensor, or --format fused or tbe for rows of codes",
                _ => "name another --format or tensor",
            };
            bail!("{path}: wanted {} in tensor {named}, found {:?}; {remedy}", wanted.join(" or "), tensor.dtype);
        }
        let &[rows, columns] = &tensor.shape[..] else {
            bail!(
                "{path}: wanted two axes in tensor {named}, rows and columns, found {:?}; reshape it, or name another",
                tensor.shape
            );
        };
        Ok(Matrix { name: name.to_owned(), shape: [rows, columns], tensor: tensor.clone() })
    }

    /// Reads neighbouring rows of a matrix that lies by rows, as many as fit into `out`.
    pub(crate) fn read(&self, matrix: &Matrix, first_row: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_at(matrix, first_row * matrix.shape[1], out)
    }

    /// Reads from a number of a matrix on.
    fn read_at(&self, matrix: &Matrix, number: u64, out: &mut [u8]) -> io::Result<()> {
        let mut file = self.files[matrix.tensor.file].lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(matrix.tensor.begin + number * matrix.each()))?;
        file.read_exact(out)
    }

    /// Reads neighbouring rows of a matrix as FP32. Returns a number of FP64 that became infinite.
    fn floats(&self, matrix: &Matrix, first_row: u64, out: &mut [f32]) -> io::Result<Option<f64>> {
        let (each, [rows, columns]) = (matrix.each() as usize, matrix.shape);
        let beyond = Cell::new(None);
        let number = |bytes: &[u8]| {
            let mut bits = [0; 8];
            bits[..each].copy_from_slice(bytes);
            if matrix.tensor.big_endian {
                bits[..each].reverse();
            }
            let bits = u64::from_le_bytes(bits);
            match matrix.tensor.dtype {
                Dtype::F64 => {
                    let wide = f64::from_bits(bits);
                    let is_beyond = wide.is_finite() && (wide as f32).is_infinite();
                    beyond.set(beyond.get().or(is_beyond.then_some(wide)));
                    wide as f32
                }
                Dtype::F16 => half(bits as u16),
                Dtype::BF16 => f32::from_bits((bits as u32) << 16),
                _ => f32::from_bits(bits as u32),
            }
        };
        if !matrix.tensor.by_columns {
            let mut bytes = vec![0; out.len() * each];
            self.read(matrix, first_row, &mut bytes)?;
            out.iter_mut().zip(bytes.chunks_exact(each)).for_each(|(x, bytes)| *x = number(bytes));
            return Ok(beyond.get());
        }
        let count = out.len() / columns as usize;
        let mut bytes = vec![0; count * each];
        for column in 0..columns as usize {
            self.read_at(matrix, column as u64 * rows + first_row, &mut bytes)?;
            let column = out[column..].iter_mut().step_by(columns as usize);
            column.zip(bytes.chunks_exact(each)).for_each(|(x, bytes)| *x = number(bytes));
        }
        Ok(beyond.get())
    }
}

/// Matrices of floats, one behind the other.
#[derive(Debug)]
pub(crate) struct Stacked {
    pub(crate) tensors: Tensors,
    pub(crate) matrices: Vec<Matrix>,
}

impl Source for Stacked {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        let mut rest = out;
        let mut row = u64::from(first_row);
        let mut base = 0;
        for matrix in &self.matrices {
            let end = base + matrix.shape[0];
            if row < end && !rest.is_empty() {
                let count = (end - row).min((rest.len() / dim) as u64);
                let (mine, others) = rest.split_at_mut(count as usize * dim);
                let name = || self.tensors.path.display().to_string();
                let beyond = self.tensors.floats(matrix, row - base, mine).map_err(|error| Error::Source {
                    name: name(),
                    row: row as u32,
                    wanted: format!("{} floats from here on", mine.len()),
                    found: error.to_string(),
                    remedy: "leave the file as it is while it is imported",
                    source: Some(std::sync::Arc::new(Box::new(error))),
                })?;
                if let Some(found) = beyond {
                    let at = mine.iter().position(|x| x.is_infinite()).unwrap_or(0);
                    return Err(Error::Source {
                        name: name(),
                        row: row as u32 + (at / dim) as u32,
                        wanted: format!("numbers of at most {:e} in magnitude, as FP32 can hold", f32::MAX),
                        found: format!("{found:e} of FP64 at element {}", at % dim),
                        remedy: "correct or scale the row",
                        source: None,
                    });
                }
                (row, rest) = (row + count, others);
            }
            base = end;
        }
        Ok(())
    }
}

/// A name in a message: in quotes if it could be taken for several names, or does not fit a line.
pub(crate) fn quoted(name: &str) -> String {
    if name.contains([',', '"']) || plain(name) != name { format!("{name:?}") } else { name.to_owned() }
}

/// Names in a message, not all of a large model's.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    match names {
        [] => "none".to_owned(),
        _ => names.iter().take(SHOWN).map(|name| quoted(name)).collect::<Vec<_>>().join(", ") + &more,
    }
}
