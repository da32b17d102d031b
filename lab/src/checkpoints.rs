//! Checkpoints of a run, with everything that it needs to continue to the same bits. Each is a folder, of which only the newest stays:
//!
//! | file | content |
//! |---|---|
//! | `group-0.safetensors` ... | the groups of tables ([`hotrow::checkpoint`]); over ranks folders `group-0` ... |
//! | `dense.safetensors` | the dense part's weights and their AdaGrad state, and the epoch's loss so far |
//! | `run.json` | the run, and the number of its steps |

use crate::dense::{tensor, values};
use crate::ranks::Ranks;
use crate::scaling::rate;
use crate::tables::Tables;
use anyhow::{Context as _, bail, ensure};
use burn::tensor::Tensor;
use hotrow_dist::Comm as _;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, fs};

/// The prefix of the number of steps in a checkpoint's name.
const STEP: &str = "step-";

/// The file with the run that the checkpoint belongs to, and the number of its steps. The end is no part of it, unless rates fall towards it.
const HEAD: &str = "run.json";

/// The checkpoints that a run keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Keep {
    /// The folder of this run alone.
    pub(crate) folder: PathBuf,
    /// Steps between two checkpoints; without it no checkpoint is written.
    pub(crate) every: Option<u64>,
    /// Whether to continue from the newest checkpoint, if there is one.
    pub(crate) resume: bool,
}

/// The state of a run without its tables.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) steps: u64,
    /// Weights of the dense part, then their state.
    pub(crate) dense: Vec<Tensor<2>>,
    /// The loss of the epoch so far.
    pub(crate) loss: f64,
}

/// A complete checkpoint that may still be bad: the next loss with its weights may not be finite. If it is dropped before
/// [`prove`](Self::prove), it is removed.
#[derive(Debug)]
pub(crate) struct Unproved {
    partial: PathBuf,
    place: PathBuf,
}

impl Unproved {
    /// Writes the checkpoint. Until it is proved the one before it stays the newest, even if the process is killed. Over ranks all make this
    /// call, and rank 0 returns the checkpoint.
    pub(crate) fn write(
        folder: &Path,
        identity: &Value,
        tables: &mut Tables<'_>,
        beside: &Beside,
        ranks: Option<Ranks<'_>>,
    ) -> anyhow::Result<Option<Self>> {
        let [place, partial] = ["", ".partial"].map(|end| folder.join(format!("{STEP}{}{end}", beside.steps)));
        let first = ranks.is_none_or(|ranks| ranks.rank() == 0);
        // Only one rank removes it, if it cannot be written.
        let unproved = first.then(|| Self { partial: partial.clone(), place: place.clone() });
        let mut write = || -> anyhow::Result<()> {
            if first {
                if partial.exists() {
                    fs::remove_dir_all(&partial)?;
                }
                fs::create_dir_all(&partial)?;
            }
            // The other ranks wait for the folder.
            ranks.map_or(Ok(0), |mut ranks| ranks.max(0))?;
            tables.save(&partial)?;
            if !first {
                return Ok(());
            }
            let loss = ("loss".to_owned(), (Dtype::F64, vec![1], beside.loss.to_le_bytes().to_vec()));
            let dense = beside.dense.iter().enumerate().map(|(at, tensor)| {
                let bytes = values(tensor.clone()).into_iter().flat_map(f32::to_le_bytes).collect();
                (at.to_string(), (Dtype::F32, tensor.dims().to_vec(), bytes))
            });
            let all: Vec<_> = std::iter::once(loss).chain(dense).collect();
            let views = all
                .iter()
                .map(|(name, (dtype, shape, bytes))| Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?)));
            let views = views.collect::<Result<Vec<_>, SafeTensorError>>()?;
            fs::write(partial.join("dense.safetensors"), safetensors::serialize(views, None)?)?;
            Ok(fs::write(partial.join(HEAD), format!("{:#}", json!({ "steps": beside.steps, "run": identity })))?)
        };
        write().with_context(|| cannot_write(&place))?;
        Ok(unproved)
    }

    /// Renames the checkpoint to its final name, and removes all others: later ones are of another run in the same folder.
    pub(crate) fn prove(self) -> anyhow::Result<()> {
        let place = || -> anyhow::Result<()> {
            if self.place.exists() {
                fs::remove_dir_all(&self.place)?;
            }
            fs::rename(&self.partial, &self.place)?;
            let all = all(self.place.parent().unwrap_or(Path::new(".")))?;
            all.into_iter()
                .filter(|(_, place)| *place != self.place)
                .try_for_each(|(_, other)| fs::remove_dir_all(other))?;
            Ok(())
        };
        place().with_context(|| cannot_write(&self.place))
    }
}

impl Drop for Unproved {
    fn drop(&mut self) {
        // Already gone if it was proved. A failure to remove it does no harm.
        let _left = fs::remove_dir_all(&self.partial);
    }
}

fn cannot_write(place: &Path) -> String {
    format!("{}: wanted to write a checkpoint there; check the folder and its room", place.display())
}

/// A line for each option in which a run of `most` steps differs from the newest checkpoint of a folder, if any; for the data's bits only if alone.
pub(crate) fn compare(folder: &Path, asked: &Value, most: u64) -> anyhow::Result<Option<Vec<String>>> {
    let Some((steps, place)) = newest(folder, None)? else { return Ok(None) };
    let of = || format!("{}: wanted the run of a checkpoint, found no {HEAD} of one; remove it", place.display());
    let found = fs::read(place.join(HEAD)).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let found = found.filter(|found| found["run"].is_object() && found["steps"] == steps).with_context(of)?;
    let mut lines = Vec::new();
    differences("", &found["run"], asked, &mut lines);
    if steps > most && asked["steps"].is_null() {
        lines.push(format!("\nsteps: {steps} in the checkpoint, {most} asked"));
    }
    let others = lines.len() > 1;
    lines.retain(|line| !others || !line.starts_with("\ndata-crc32"));
    Ok(Some(lines))
}

/// Loads a checkpoint of the same options into the tables and returns the other state. `like` are tensors of the expected shapes.
pub(crate) fn load(from: &(u64, PathBuf), tables: &mut Tables<'_>, like: &[Tensor<2>]) -> anyhow::Result<Beside> {
    let (steps, place) = (from.0, &from.1);
    let read = |tables: &mut Tables<'_>| -> anyhow::Result<Beside> {
        let file = fs::read(place.join("dense.safetensors"))?;
        let tensors = SafeTensors::deserialize(&file)?;
        let take = |name: &str| {
            tensors.tensor(name).with_context(|| format!("dense.safetensors: wanted a tensor {name}, found none"))
        };
        let (loss, _) = take("loss")?.data().as_chunks();
        let dense = like.iter().enumerate().map(|(at, like)| {
            let found = take(&at.to_string())?;
            let (wanted, shape) = (like.dims(), found.shape());
            let is_like = found.dtype() == Dtype::F32 && *shape == wanted;
            ensure!(
                is_like,
                "dense.safetensors: wanted FP32 {wanted:?} in tensor {at}, found {:?} {shape:?}",
                found.dtype()
            );
            let (words, _) = found.data().as_chunks();
            Ok(tensor(words.iter().copied().map(f32::from_le_bytes).collect(), wanted, &like.device()))
        });
        let dense = dense.collect::<anyhow::Result<Vec<_>>>()?;
        tables.load(place)?;
        let [loss] = loss[..] else { bail!("dense.safetensors: wanted one loss, found {}", loss.len()) };
        Ok(Beside { steps, dense, loss: f64::from_le_bytes(loss) })
    };
    read(tables).with_context(|| format!("checkpoint {}", place.display()))
}

/// Adds a line for each option that differs, once if it differs alike for several tables.
fn differences(name: &str, found: &Value, asked: &Value, lines: &mut Vec<String>) {
    match (found, asked) {
        (found, asked) if found == asked => {}
        (Value::Object(of_found), Value::Object(of_asked)) => {
            let names: BTreeSet<_> = of_found.keys().chain(of_asked.keys()).collect();
            names.into_iter().for_each(|name| differences(name, &found[name], &asked[name], lines));
        }
        (Value::Array(found), Value::Array(asked)) if found.len() == asked.len() => {
            found.iter().zip(asked).for_each(|(found, asked)| differences(name, found, asked, lines));
        }
        _ => {
            // Floats as FP32, since JSON may change their last bit.
            let shown = |value: &Value| match value {
                Value::Number(number) if number.is_f64() => rate(number.as_f64().unwrap_or(f64::NAN) as f32),
                Value::Null => "none".to_owned(),
                Value::String(text) => text.clone(),
                Value::Array(values) => format!("{} of them", values.len()),
                value => value.to_string(),
            };
            let name = name.replace('_', "-");
            let (found, asked) = (shown(found), shown(asked));
            let line = format!("\n{name}: {found} in the checkpoint, {asked} asked");
            if found != asked && !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
}

/// The newest checkpoint in a run's folder, with its number of steps. Over ranks all make this call, and rank 0 looks.
pub(crate) fn newest(folder: &Path, ranks: Option<Ranks<'_>>) -> anyhow::Result<Option<(u64, PathBuf)>> {
    let Some(ranks) = ranks else { return Ok(all(folder)?.into_iter().max()) };
    let own = if ranks.rank() == 0 { newest(folder, None)? } else { None };
    // The other ranks add 0.
    let found = ranks.total(&[own.map_or(0, |(steps, _)| steps + 1)])?;
    let steps = found.first().and_then(|found| found.checked_sub(1));
    Ok(steps.map(|steps| (steps, folder.join(format!("{STEP}{steps}")))))
}

/// Every checkpoint in a run's folder, which may not exist. Checkpoints that are not proved have other names and do not count.
fn all(folder: &Path) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let steps = entry.file_name().to_str().and_then(|name| name.strip_prefix(STEP)?.parse().ok());
        found.extend(steps.map(|steps| (steps, entry.path())));
    }
    Ok(found)
}
