//! What unified memory would have moved: whole pages, least recently used out first, over the same accesses and in the same
//! device bytes (SPEC 4). A baseline for the plots: its figures are predicted, never measured.

use crate::{
    Policy,
    simulate::{GeometryError, Simulator},
};

/// Pages and the bus they cross.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UvmModel {
    /// Bytes of a page; a driver moves 4 KiB to 2 MiB.
    pub page_bytes: u64,
    /// Bytes a second over the bus, one way.
    pub bus_bytes_per_second: f64,
    /// Seconds a fault costs beside the transfer. 0 makes the prediction an upper bound for unified memory.
    pub fault_seconds: f64,
}

impl Default for UvmModel {
    /// 64 KiB pages over PCIe 4 x16 (about 25 GB/s), faults for free.
    fn default() -> Self {
        Self { page_bytes: 64 << 10, bus_bytes_per_second: 25e9, fault_seconds: 0.0 }
    }
}

/// The pages of one table and which of them the device holds.
#[derive(Debug)]
pub struct UvmTable {
    model: UvmModel,
    row_bytes: u64,
    resident: Simulator,
}

/// What one step would have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UvmTraffic {
    /// Bytes to the device: pages faulted in by forward.
    pub bytes_in: u64,
    /// Bytes back: pages that backward of an earlier step wrote and this step drove out.
    pub bytes_out: u64,
    /// Seconds the bus and the faults of forward take.
    pub forward_seconds: f64,
    /// Seconds of the pages written back.
    pub backward_seconds: f64,
}

impl UvmTable {
    /// A table of rows of `row_bytes` each, of which the device holds `device_bytes` in whole pages.
    ///
    /// # Errors
    /// [`GeometryError`] if not a single page fits.
    pub fn new(model: UvmModel, row_bytes: u64, device_bytes: u64) -> Result<Self, GeometryError> {
        let pages = (device_bytes / model.page_bytes.max(1)).min(1 << 30) as u32;
        Ok(Self { model, row_bytes, resident: Simulator::new(1, pages, Policy::Lru)? })
    }

    /// One training step over these linear rows.
    pub fn step(&mut self, rows: &[u32]) -> UvmTraffic {
        let first = |row: u32| u64::from(row) * self.row_bytes / self.model.page_bytes;
        let last = |row: u32| (u64::from(row) * self.row_bytes + self.row_bytes - 1) / self.model.page_bytes;
        let pages: Vec<u32> = rows.iter().flat_map(|&row| first(row)..=last(row)).map(|page| page as u32).collect();
        let before = self.resident.counters();
        self.resident.step(&pages);
        let after = self.resident.counters();
        let moved_in = after.unique_misses - before.unique_misses;
        // A page that finds no room is moved in and, written, moved out again within the step.
        let moved_out = after.evictions - before.evictions + after.conflicts - before.conflicts;
        let page_seconds = self.model.page_bytes as f64 / self.model.bus_bytes_per_second;
        UvmTraffic {
            bytes_in: moved_in * self.model.page_bytes,
            bytes_out: moved_out * self.model.page_bytes,
            forward_seconds: moved_in as f64 * (page_seconds + self.model.fault_seconds),
            backward_seconds: moved_out as f64 * page_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_move() {
        let model = UvmModel { page_bytes: 4096, bus_bytes_per_second: 4096e3, fault_seconds: 1e-3 };
        let mut table = UvmTable::new(model, 512, 2 * 4096).unwrap();
        // Rows 0 to 7 share page 0; row 8 begins page 1.
        let first = table.step(&[0, 7, 8]);
        assert_eq!((first.bytes_in, first.bytes_out), (2 * 4096, 0));
        assert!((first.forward_seconds - 4e-3).abs() < 1e-12);
        assert_eq!(table.step(&[1, 9]), UvmTraffic::default());
        let third = table.step(&[16]);
        assert_eq!((third.bytes_in, third.bytes_out), (4096, 4096));
    }

    #[test]
    fn a_row_across_a_border_takes_two_pages() {
        let model = UvmModel { page_bytes: 4096, ..UvmModel::default() };
        let mut table = UvmTable::new(model, 4097, 8 * 4096).unwrap();
        assert_eq!(table.step(&[0]).bytes_in, 2 * 4096);
    }

    #[test]
    fn no_page_no_table() {
        assert!(UvmTable::new(UvmModel::default(), 512, 1000).is_err());
    }
}
