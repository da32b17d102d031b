//! What a group over ranks may lose for fewer bytes.

use hotrow::{
    Error,
    ranks::{Vectors, WireForm},
};

/// How rows and gradients go between ranks. By default nothing is lost. Any other choice gives other bits, which still do not depend on the number
/// of ranks: what a rank reads of its own rows is rounded and summed, too (SPEC 11).
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Lookup, Mode, Precision};
/// use hotrow_dist::{Group, Phase, Threads, WireForm, WireOptions};
///
/// let bytes = |wire: WireOptions| {
///     let bytes = Threads::run(2, |comm: &mut Threads| {
///         let config = GroupConfig::new(&[10], 64).with_precision(Precision::Fp32);
///         let group = Group::new(comm, config, 2, CpuGroup::new)?;
///         let mut group = group.with_wire(wire)?;
///         // The other rank's row, three times: in two of this rank's bags.
///         let row = 1 - group.rank();
///         let outputs = group.forward(Bags::new(&[row; 3], &[0, 1, 3]), Mode::Train)?;
///         group.backward(&outputs)?;
///         Ok([Phase::Rows, Phase::Gradients].map(|phase| group.traffic().bytes(phase)))
///     })?;
///     Ok::<_, hotrow::Error>(bytes[0])
/// };
/// // A row of 64 floats; the gradients of two bags, the number of the bags, and two words of places.
/// assert_eq!(bytes(WireOptions::default())?, [256, 2 * 256 + 4 + 8]);
/// // 64 codes with a scale and a bias; one sum in FP16.
/// let wire = WireOptions { rows: WireForm::Int8, gradients: WireForm::Fp16, summed: true };
/// assert_eq!(bytes(wire)?, [72, 128]);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireOptions {
    /// The form of a row that a forward reads. A row that is its record, and no longer there than in this form, goes as its record.
    pub rows: WireForm,
    /// The form of the gradients.
    pub gradients: WireForm,
    /// Whether a rank sums the gradients of each row before it sends them: those of each of its slices of the batch. There are as many slices as
    /// virtual shards. For bags of one row this saves bytes; for long bags it costs some.
    pub summed: bool,
}

impl WireOptions {
    /// Refuses a form that is not shorter than FP32.
    pub(crate) fn check(self, dim: u32) -> Result<(), Error> {
        let short = |form| form == WireForm::Exact || Vectors::gradients(dim, form, (0, 0)).words() < dim as usize;
        if [self.rows, self.gradients].into_iter().all(short) {
            return Ok(());
        }
        let found = format!("rows in {} and gradients in {} of {dim} floats", self.rows, self.gradients);
        let wanted = "a form that is shorter than FP32: fp16 for at least 2 floats a row, int8 for at least 4".into();
        Err(Error::Config { field: "wire", wanted, found })
    }

    /// A number of its own, below 18.
    pub(crate) const fn code(self) -> u32 {
        self.rows as u32 + 3 * (self.gradients as u32 + 3 * self.summed as u32)
    }

    pub(crate) fn is_lossy(self) -> bool {
        [self.rows, self.gradients].into_iter().any(|form| form != WireForm::Exact)
    }
}
