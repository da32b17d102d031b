//! The bytes that a kernel must move through memory in any form: each input is read once, each output written once, the 32 tags of a set
//! read once for all accesses; a radix sort moves the bytes of its 8-bit passes.

/// The kernel of a stage. A stage that is not listed is a kernel of its own.
pub(super) fn kernel(stage: &'static str) -> &'static str {
    match stage {
        "touch" => "probe",
        "histogram" | "scan" | "scatter" | "sort_small" => "sort",
        "heads" | "segments" => "dedup",
        "locate" => "admit",
        "combine" => "merge",
        _ => stage,
    }
}

/// Mean counts of a step of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(super) accesses: f64,
    /// Accesses to rows that were resident.
    pub(super) hits: f64,
    pub(super) distinct: f64,
    /// Distinct rows that were not resident.
    pub(super) missing: f64,
    pub(super) admitted: f64,
    /// Dirty victims.
    pub(super) write_backs: f64,
    /// Rows used without a slot.
    pub(super) bypassed: f64,
    pub(super) outputs: f64,
    /// Accesses to rows with more than [`HEAVY`] accesses, whose gradients are summed in chunks first.
    pub(super) heavy_accesses: f64,
    pub(super) sets: f64,
    /// Bytes of a row in FP32.
    pub(super) row: f64,
    /// Bytes of a row's optimiser state in FP32.
    pub(super) state: f64,
    pub(super) record: f64,
    /// 8-bit passes of forward's sort of the misses, and of backward's sort of all accesses.
    pub(super) passes: [f64; 2],
}

/// A row with more accesses is heavy: the kernels sum its gradients in chunks of this size.
pub(super) const HEAVY: u32 = hotrow::internals::layout::MERGE_CHUNK;

impl Facts {
    pub(crate) fn hit_rate(&self) -> f64 {
        self.hits / self.accesses.max(1.0)
    }

    /// Bytes that cross to and from the table in a step.
    pub(super) fn table_bytes(&self, backward: bool) -> f64 {
        if backward { self.bypassed * self.record } else { (self.missing + self.write_backs) * self.record }
    }

    /// Bytes by TBE's measure: outputs, and the row of every access; twice that in backward.
    pub(super) fn logical(&self, backward: bool) -> f64 {
        let forward = (self.outputs + self.accesses) * self.row;
        if backward { 2.0 * forward } else { forward }
    }

    /// Bytes that `kernel` must move in a phase; `None` without a formula.
    pub(super) fn bytes(&self, kernel: &str, backward: bool) -> Option<f64> {
        let slot = self.row + self.state;
        // Accesses to missing rows. The counters do not tell them; each missing row had at least one.
        let missed = (self.accesses - self.hits).max(self.missing);
        let (sorted, rows) = if backward { (self.accesses, self.distinct) } else { (missed, self.missing) };
        Some(match kernel {
            // Each access reads an index and writes key and output row; the offsets are read.
            "linearize" => 16.0 * self.accesses + 4.0 * self.outputs,
            // Each access reads a key and writes a place; 32 tags of each touched set; a stamp of each row; start, row and swap of each missing row.
            "probe" => {
                8.0 * self.accesses + 128.0 * self.distinct.min(self.sets) + 4.0 * self.distinct + 28.0 * self.missing
            }
            // Values that are positions are not read.
            "sort" => sort(self.passes[usize::from(backward)], sorted, !backward),
            // Each sorted key is read and its segment written, in forward by its index, which is read; a start of each distinct row, in forward
            // with an index.
            "dedup" if backward => 8.0 * sorted + 4.0 * rows,
            "dedup" => 12.0 * sorted + 8.0 * rows,
            // Tags, stamps and dirty flags of each set with a missing row; a swap of each missing row, read and written.
            "admit" => 32.0 * self.missing + 384.0 * self.missing.min(self.sets),
            // A row in and a record out for each dirty victim, a record in and a row out for each missing row.
            "exchange" => (self.missing + self.write_backs) * (slot + self.record),
            // A place of each access, and of each miss that of its row; each distinct row is read once; the outputs are written.
            "gather" => 4.0 * (self.accesses + missed) + self.distinct * self.row + self.outputs * self.row,
            // Each access reads order, segment, output row and weight, and writes the latter two; row and place of each distinct row.
            "arrange" => 24.0 * self.accesses + 24.0 * self.distinct,
            // The gradients of heavy rows are read, and a sum for each chunk is written.
            "merge" => self.heavy_accesses * (8.0 + self.row + self.row / f64::from(HEAVY)),
            // Sorted accesses and gradients are read once; each distinct row and its state are read and written, bypassed rows written as records.
            "update" => {
                8.0 * self.accesses
                    + 16.0 * self.distinct
                    + self.outputs.min(self.accesses) * self.row
                    + 2.0 * (self.distinct - self.bypassed) * slot
                    + self.bypassed * (slot + self.record)
            }
            _ => return None,
        })
    }
}

/// Bytes that a radix sort of `n` pairs moves in `passes` passes. Each pass reads and writes the pairs; the first reads no values if they are
/// positions. The stages that write the keys count their first digits.
pub(super) fn sort(passes: f64, n: f64, values: bool) -> f64 {
    (16.0 * passes - if values { 0.0 } else { 4.0 }) * n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_step_at_full_hits() {
        let facts = Facts {
            accesses: 1000.0,
            hits: 1000.0,
            distinct: 400.0,
            outputs: 50.0,
            sets: 100.0,
            row: 512.0,
            record: 136.0,
            passes: [4.0, 2.0],
            ..Facts::default()
        };
        let bytes = |kernel, backward| facts.bytes(kernel, backward);
        assert_eq!(bytes("gather", false), Some(4000.0 + 450.0 * 512.0));
        assert_eq!(bytes("probe", false), Some(8000.0 + 12_800.0 + 1600.0));
        assert_eq!(bytes("sort", true), Some(28_000.0));
        // Without missing rows nothing is sorted, admitted or exchanged.
        for kernel in ["sort", "dedup", "admit", "exchange"] {
            assert_eq!(bytes(kernel, false), Some(0.0), "{kernel}");
        }
        assert_eq!(bytes("a new stage", false), None);
        assert_eq!(facts.logical(true), 2.0 * 1050.0 * 512.0);
        assert_eq!((kernel("locate"), kernel("a new stage")), ("admit", "a new stage"));
    }
}
