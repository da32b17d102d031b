//! `hotrow import`: a checkpoint of tables that other programs wrote (docs/pytorch.md).

use crate::export::Format;
use crate::fused::{Form, Look, RowForm};
use crate::tensors::{self, FLOATS, Matrix, Stacked, Tensors, converted, listed, quoted};
use anyhow::{Context as _, bail};
use hotrow::{
    CpuGroup, Error, GroupConfig, Init, Optimizer, OptimizerKind, Policy, Precision, Rounding, Searched, checkpoint,
    prelude::*, state::Part,
};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::{one_of, precisions, value_name};
use hotrow_report::object::Object;
use hotrow_report::options::{MOST_ROWS, Options, WindowArgs, whole};
use hotrow_report::output;
use hotrow_report::progress::Progress;
use safetensors::Dtype;
use std::path::{Path, PathBuf};

/// Make a checkpoint of tables in the formats of `hotrow export`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to read: .npy, .safetensors, or .safetensors.index.json of parts
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format [default: npy or safetensors, by the file's ending]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Checkpoint to write
    #[arg(long, value_name = "CHECKPOINT", value_parser = output::file())]
    out: PathBuf,
    /// Tensors to read, one a table, in order of the tables; a comma separates names, unless the file has a tensor whose name contains it [default: the only one, or 0.weight, 1.weight, ..]
    #[arg(long, value_name = "NAME[,NAME]")]
    tensor: Vec<String>,
    /// Floats in a row; only rows of format tbe that are padded need it
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = whole(1u32..=1 << 24))]
    dim: Option<u32>,
    /// Precision of the tables; fused and tbe: that of the file [default: fp32; fused and tbe: the one that the file states]
    #[arg(long, value_parser = one_of(precisions()))]
    precision: Option<Precision>,
    /// Rounding of FP32 rows that are imported, or written later, whatever --like says
    #[arg(long, default_value_t = Rounding::Nearest, value_parser = one_of(Rounding::ALL))]
    import_rounding: Rounding,
    /// Search the range of each row's codes for the least squared error: int2 loses a third to a half of its error, int4 a sixth; not for files of codes
    #[arg(long)]
    search: bool,
    /// Rounding in later training
    #[arg(long, default_value_t = Rounding::Stochastic, value_parser = one_of(Rounding::ALL))]
    rounding: Rounding,
    /// Update rule, whose state begins at zero; training may choose its rate anew
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Rows that the FP32 cache holds; it begins empty
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole(0..=u32::MAX))]
    cache_rows: u32,
    /// Replacement policy
    #[arg(long, default_value_t = Policy::Lru, value_parser = one_of(Policy::ALL))]
    policy: Policy,
    #[command(flatten)]
    window: WindowArgs,
    /// Take every setting from this checkpoint, so that whatever loads it can load the new one
    #[arg(long, value_name = "CHECKPOINT", conflicts_with_all = ["precision", "rounding", "optimizer", "cache_rows", "policy", "window_ways"])]
    like: Option<PathBuf>,
}

/// The tables of a file, not read yet.
struct Found {
    rows: Vec<u32>,
    dim: u32,
    content: Content,
    /// What was converted or concluded.
    notes: Vec<String>,
}

enum Content {
    Values(Stacked),
    Codes { matrices: Vec<Matrix>, tensors: Tensors, form: RowForm, precision: Precision },
}

impl Args {
    pub(crate) fn format(&self) -> Result<Format, Failure> {
        let by_ending = || match self.file.extension().and_then(|ending| ending.to_str()) {
            Some("npy") => Ok(Format::Npy),
            Some("safetensors" | "json") => Ok(Format::Safetensors),
            _ => {
                tensors::open(&self.file)?;
                Err(Failure::Usage(format!(
                    "--format: wanted it beside a file that ends neither in .npy nor in .safetensors, found {} alone; name the format",
                    self.file.display()
                )))
            }
        };
        self.format.map_or_else(by_ending, Ok)
    }

    fn config(&self, options: &Options, found: &Found) -> Result<GroupConfig, Failure> {
        let held = match &found.content {
            Content::Values(_) => None,
            Content::Codes { precision, .. } => Some(*precision),
        };
        let zeros = Init::Constant(0.0);
        let Some(like) = &self.like else {
            let precision = held.or(self.precision).unwrap_or(Precision::Fp32);
            let config = GroupConfig::new(&found.rows, found.dim)
                .with_precision(precision)
                .with_forward_only(!precision.trains())
                .with_rounding(self.rounding)
                .with_write_rounding(self.import_rounding)
                .with_optimizer(Optimizer::usual(self.optimizer, 0.01))
                .with_cache_rows(self.cache_rows)
                .with_policy(self.policy)
                .with_window_ways(self.window.window_ways)
                .with_seed(options.group_seed());
            return Ok(config.with_init(zeros));
        };
        let config = checkpoint::contents(like)?.0.with_init(zeros);
        let config = config.with_write_rounding(self.import_rounding);
        let wanted = (&config.tables, config.dim, held.map(|_| config.precision));
        if wanted != (&found.rows, found.dim, held) {
            let text = |rows: &[u32], dim, precision: Option<Precision>| {
                let rows: Vec<String> = rows.iter().map(u32::to_string).collect();
                let precision = precision.map_or_else(String::new, |precision| format!(" in {precision}"));
                format!("tables of {} rows x {dim}{precision}", listed(&rows))
            };
            return Err(Failure::Usage(format!(
                "--like: wanted {}, as {} has, found {} in {}; name a checkpoint of the same shape",
                text(wanted.0, wanted.1, wanted.2),
                like.display(),
                text(&found.rows, found.dim, held),
                self.file.display()
            )));
        }
        Ok(config)
    }

    fn open(&self, format: Format) -> Result<Found, Failure> {
        let Some(form) = format.form() else {
            if let Some(dim) = self.dim {
                return Err(Failure::Usage(format!(
                    "--dim: wanted format tbe beside it, found {} and {dim}; leave it out",
                    value_name(&format)
                )));
            }
            ensure_usage!(
                format != Format::Npy || self.tensor.is_empty(),
                "--tensor: wanted a file of tensors beside it, found npy and {}; leave it out",
                self.tensor.join(",")
            );
            return self.open_floats(format);
        };
        let tensors = Tensors::open(&self.file, &self.tensor)?;
        let matrices = self.matrices(&tensors, &[Dtype::U8])?;
        self.check_text(&tensors, "format", Some(format!("hotrow {}", form.name())))?;
        self.check_text(&tensors, "precision", self.precision.map(|precision| precision.to_string()))?;
        self.check_text(&tensors, "dim", self.dim.map(|dim| dim.to_string()))?;
        let shown = self.file.display();
        let read = |text: &str| {
            let wanted = "wanted int8, int4 or int2 as the precision that it states";
            text.parse().ok().with_context(|| format!("{shown}: {wanted}, found {text}; correct its metadata"))
        };
        let stated = tensors.text("precision").map(read).transpose()?;
        let Some(precision) = self.precision.or(stated) else {
            return Err(Failure::Usage(format!(
                "--precision: wanted int8, int4 or int2 beside {shown}, which does not state it, found none; name it"
            )));
        };
        let (row, notes) = self.row_form(&tensors, &matrices, form, precision)?;
        let notes = [tensors.notes.clone(), notes].concat();
        let dim = row.dim;
        self.check_dim(&tensors, dim)?;
        let rows = self.rows(&matrices)?;
        Ok(Found { rows, dim, content: Content::Codes { matrices, tensors, form: row, precision }, notes })
    }

    /// Refuses a file that states something else.
    fn check_text(&self, tensors: &Tensors, field: &'static str, wanted: Option<String>) -> Result<(), Failure> {
        match (wanted, tensors.text(field)) {
            (Some(wanted), Some(found)) if wanted != found => Err(Failure::Usage(format!(
                "--{field}: wanted {found}, as {} states, found {wanted}; leave the option out or name another file",
                self.file.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a file that states another dim than its rows have.
    fn check_dim(&self, tensors: &Tensors, dim: u32) -> anyhow::Result<()> {
        let shown = self.file.display();
        match tensors.text("dim").filter(|stated| *stated != dim.to_string()) {
            Some(stated) => {
                bail!("{shown}: wanted rows of dim {stated}, as it states, found {dim}; correct its metadata")
            }
            None => Ok(()),
        }
    }

    /// The form of the rows: the usual one, or the other where only it fits the bytes.
    fn row_form(
        &self,
        tensors: &Tensors,
        matrices: &[Matrix],
        form: Form,
        precision: Precision,
    ) -> Result<(RowForm, Vec<String>), Failure> {
        let (shown, row_bytes) = (self.file.display(), matrices[0].shape[1]);
        let usual = self.usual_form(row_bytes, form, precision);
        if tensors.text("format").is_some_and(|format| format.starts_with("hotrow ")) {
            return Ok((usual?, Vec::new()));
        }
        let other = match self.dim {
            Some(dim) => {
                RowForm::new(form, precision, dim).ok().map(RowForm::other).filter(|row| holds(form, row, row_bytes))
            }
            None => RowForm::of_bytes(form, precision, false, row_bytes),
        };
        let forms = [usual.as_ref().ok().copied(), other];
        let mut looks = [Look::default(); 2];
        for matrix in matrices {
            pieces(tensors, matrix, |first, bytes| {
                for (row, bytes) in (first..).zip(bytes.chunks_exact(row_bytes as usize)) {
                    let read = forms.iter().zip(&mut looks).filter_map(|(form, look)| Some((form.as_ref()?, look)));
                    read.for_each(|(form, look)| form.look(row, bytes, look));
                }
                Ok(())
            })
            .with_context(|| format!("{shown}, tensor {}", quoted(&matrix.name)))?;
        }
        let kind = |row: &RowForm| if row.number == 2 { "FP16" } else { "FP32" };
        let may_be = usual.is_ok() && looks[0].may_be();
        // Rows end in zeros: of padding, or of codes.
        let aligned = u64::from(form == Form::Tbe && row_bytes.is_multiple_of(MOST_PADDING));
        let zeros = aligned * looks[0].zeros().max(looks[1].zeros());
        let padded = |row: &RowForm| {
            let short = RowForm::of_bytes(form, precision, row.number == 2, row_bytes - zeros)?;
            (self.dim.is_none() && zeros > 0).then(|| Failure::Usage(format!(
                "--dim: wanted it beside {shown}, whose rows all end in zeros and may have {} floats and padding, or {} floats, found none; name it",
                short.dim, row.dim
            )))
        };
        match (usual, other) {
            _ if looks[0].is_bf16() || !may_be && looks[1].fits() && looks[1].is_bf16() => Err(anyhow::anyhow!(
                "{shown}: wanted FP16 or FP32 as scale and bias, found what looks like BF16; convert them, or save the rows as floats"
            )
            .into()),
            (Ok(row), Some(other)) if may_be && looks[1].fits() && self.dim.is_none() => Err(Failure::Usage(format!(
                "--dim: wanted it beside {shown}, whose rows may have {} floats behind {} or {} behind {} as scale and bias, found none; name it",
                row.dim,
                kind(&row),
                other.dim,
                kind(&other)
            ))),
            (Ok(row), _) if may_be => padded(&row).map_or(Ok((row, Vec::new())), Err),
            (_, Some(other)) if looks[1].fits() => {
                if let Some(failure) = padded(&other) {
                    return Err(failure);
                }
                let note = format!("rows have {} as scale and bias, since no other reading fits: {} floats each", kind(&other), other.dim);
                Ok((other, vec![note]))
            }
            (Ok(row), _) => {
                let found = match (looks[0].padded, looks[0].first) {
                    (Some(row), _) => format!("padding that is not zero in row {row}"),
                    (None, Some((row, scale, bias))) => format!("scale {scale} and bias {bias} in row {row}, and more of the kind"),
                    (None, None) => "others".to_owned(),
                };
                Err(anyhow::anyhow!(
                    "{shown}: wanted rows of {} codes in {precision} with {} as scale and bias, found {found}; are format, precision and dim right?",
                    row.dim,
                    kind(&row)
                )
                .into())
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// The rows of a form as FBGEMM writes it, if they have so many bytes.
    fn usual_form(&self, row_bytes: u64, form: Form, precision: Precision) -> Result<RowForm, Failure> {
        let shown = self.file.display();
        let Some(dim) = self.dim else {
            return RowForm::of_bytes(form, precision, true, row_bytes).ok_or_else(|| {
                Failure::Usage(format!(
                    "{shown}: wanted rows of whole words of codes beside scale and bias in format {} of {precision}, found {row_bytes} bytes \
                     a row; name another --precision or --format, or the --dim of padded rows",
                    form.name()
                ))
            });
        };
        let row = RowForm::new(form, precision, dim).map_err(|error| Failure::Usage(format!("{shown}: {error}")))?;
        let bytes = row.bytes() as u64;
        ensure_usage!(
            holds(form, &row, row_bytes),
            "--dim: wanted rows of {bytes} to {} bytes for {dim} floats of {precision}, found {row_bytes} in {shown}; name the table's dim",
            most_bytes(form, bytes)
        );
        Ok(row)
    }

    fn open_floats(&self, format: Format) -> Result<Found, Failure> {
        let tensors =
            if format == Format::Npy { Tensors::npy(&self.file)? } else { Tensors::open(&self.file, &self.tensor)? };
        let matrices = self.matrices(&tensors, &FLOATS)?;
        let (rows, dim) = (self.rows(&matrices)?, number(&self.file, "dim", matrices[0].shape[1], 1 << 24)?);
        // Other programs may mean something else by it.
        if tensors.text("format").is_some_and(|format| format.starts_with("hotrow ")) {
            self.check_dim(&tensors, dim)?;
        }
        let notes = [tensors.notes.clone(), converted(&matrices)].concat();
        Ok(Found { rows, dim, content: Content::Values(Stacked { tensors, matrices }), notes })
    }

    /// The tensors of the tables, of one of these types and all equally wide.
    fn matrices(&self, tensors: &Tensors, types: &[Dtype]) -> Result<Vec<Matrix>, Failure> {
        let shown = self.file.display();
        let all = tensors.names();
        let names = if self.tensor.is_empty() {
            let numbered: Vec<String> = (0..all.len()).map(|at| format!("{at}.weight")).collect();
            let is_one = all.len() == 1;
            if !is_one && (all.is_empty() || numbered.iter().any(|name| !all.contains(name))) {
                return Err(Failure::Usage(format!(
                    "--tensor: wanted the names of the tables beside {shown}, which has other tensors than 0.weight, 1.weight, ..: {}; name the \
                     tables in order",
                    listed(&all)
                )));
            }
            if is_one { all } else { numbered }
        } else {
            tensors.chosen.clone()
        };
        let matrices = names.iter().map(|name| tensors.matrix(name, types)).collect::<anyhow::Result<Vec<_>>>()?;
        match matrices.iter().find(|matrix| matrix.shape[1] != matrices[0].shape[1]) {
            None => Ok(matrices),
            Some(other) => Err(Failure::Usage(format!(
                "--tensor: wanted tables of one width, found {:?} in {} and {:?} in {}; import them one by one",
                matrices[0].shape,
                quoted(&matrices[0].name),
                other.shape,
                quoted(&other.name)
            ))),
        }
    }

    /// Makes the group of the file's tables, and says what was converted or concluded.
    pub(crate) fn group(&self, options: &Options, format: Format) -> Result<(CpuGroup, Vec<String>), Failure> {
        let found = self.open(format)?;
        let config = self.config(options, &found)?;
        // The settings are at fault here, and the source further below.
        config.check().map_err(Failure::usage)?;
        let group = match &found.content {
            Content::Values(source) => self.filled(config, source).map_err(|mut error| {
                if let Error::Source { name, .. } = &mut error {
                    *name = self.file.display().to_string();
                }
                error
            })?,
            Content::Codes { matrices, tensors, form, .. } => {
                ensure_usage!(
                    !self.search,
                    "--search: wanted rows of floats, found rows of codes, whose ranges stand; leave it out"
                );
                ensure_usage!(
                    config.optimizer.kind != OptimizerKind::Ftrl,
                    "--optimizer: wanted another rule beside packed rows, found ftrl, whose state follows from exact weights; import the rows as floats"
                );
                let mut group = CpuGroup::new(config)?;
                fill(&mut group, &self.file, matrices, tensors, form)?;
                group
            }
        };
        Ok((group, found.notes))
    }

    fn filled(&self, config: GroupConfig, source: &Stacked) -> Result<CpuGroup, Error> {
        if self.search { CpuGroup::filled(config, &Searched(source)) } else { CpuGroup::filled(config, source) }
    }

    fn rows(&self, matrices: &[Matrix]) -> anyhow::Result<Vec<u32>> {
        matrices.iter().map(|matrix| number(&self.file, "rows", matrix.shape[0], MOST_ROWS)).collect()
    }
}

/// FBGEMM pads the rows of TBE to a multiple of so many bytes on a GPU.
const MOST_PADDING: u64 = 16;
/// Number of rows that are converted at once.
const PIECE: u64 = 1 << 12;

/// A size of a table that a group can have.
pub(crate) fn number(path: &Path, what: &str, found: u64, most: u32) -> anyhow::Result<u32> {
    let fits = u32::try_from(found).ok().filter(|number| (1..=most).contains(number));
    fits.with_context(|| format!("{}: wanted 1 to {most} {what}, found {found}; name another table", path.display()))
}

/// Most bytes of a row that is padded, of so many bytes of content.
fn most_bytes(form: Form, bytes: u64) -> u64 {
    if form == Form::Tbe { bytes.next_multiple_of(MOST_PADDING) } else { bytes }
}

/// Whether a row of so many bytes may be of a form, padded or not.
fn holds(form: Form, row: &RowForm, row_bytes: u64) -> bool {
    let bytes = row.bytes() as u64;
    (bytes..=most_bytes(form, bytes)).contains(&row_bytes)
}

/// Calls `each` with neighbouring rows of bytes, and the number of the first one.
fn pieces(
    tensors: &Tensors,
    matrix: &Matrix,
    mut each: impl FnMut(u64, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for first in (0..matrix.shape[0]).step_by(PIECE as usize) {
        let mut bytes = vec![0; (PIECE.min(matrix.shape[0] - first) * matrix.row_bytes()) as usize];
        tensors.read(matrix, first, &mut bytes)?;
        each(first, &bytes)?;
    }
    Ok(())
}

fn fill(
    group: &mut CpuGroup,
    path: &Path,
    matrices: &[Matrix],
    tensors: &Tensors,
    form: &RowForm,
) -> anyhow::Result<()> {
    let layout = group.layout().row;
    let words = layout.record_words as usize;
    let progress = Progress::new("import", matrices.iter().map(|matrix| matrix.shape[0]).sum());
    let mut base = 0;
    for matrix in matrices {
        let width = matrix.row_bytes() as usize;
        let read = pieces(tensors, matrix, |first, bytes| {
            let count = bytes.len() / width;
            let mut records = vec![0; count * words];
            for ((row, bytes), record) in
                (first as u32..).zip(bytes.chunks_exact(width)).zip(records.chunks_exact_mut(words))
            {
                form.read(&layout, row, bytes, record)?;
            }
            group.write_part(Part::Records, (base + first) * words as u64, &records)?;
            progress.advance(count as u64);
            Ok(())
        });
        read.with_context(|| format!("{}, tensor {}", path.display(), quoted(&matrix.name)))?;
        base += matrix.shape[0];
    }
    Ok(())
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    let inputs: Vec<PathBuf> = [&args.file].into_iter().chain(&args.like).cloned().collect();
    output::check_out(&args.out, options.json.as_deref(), &inputs)?;
    let format = args.format()?;
    let (mut group, notes) = args.group(options, format)?;
    notes.iter().for_each(|note| output::note(&format!("note: {}: {note}", args.file.display())));
    checkpoint::save(&mut group, &args.out)?;
    let config = group.config();
    let report = Object::default()
        .with("format", value_name(&format))
        .with("file", args.file.display().to_string())
        .with("checkpoint", args.out.display().to_string())
        .with("tables", config.tables.len())
        .with("rows", config.total_rows())
        .with("dim", config.dim)
        .with("precision", config.precision.name())
        .with("optimizer", config.optimizer.kind.name())
        .with("cache_rows", config.cache_rows)
        .with("policy", config.policy.name())
        .with("file_bytes", std::fs::metadata(&args.out)?.len());
    options.write_json(&report)?;
    output::print(&report.table("import"))?;
    Ok(())
}
