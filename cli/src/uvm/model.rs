//! The time that moving pages takes.

use std::ops::{Add, AddAssign};

/// Page sizes of unified memory: the system's, the driver's usual one, and the largest.
pub const PAGE_BYTES: [u64; 3] = [4 << 10, 64 << 10, 2 << 20];

/// The pages and the bus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UvmModel {
    /// Bytes of a page, a power of two. Drivers move 4 KiB to 2 MiB.
    pub page_bytes: u64,
    /// Bytes a second over the bus in one direction.
    pub bus_bytes_per_second: f64,
    /// Seconds to handle a fault, without the transfer. With 0 the prediction is an upper bound for unified memory.
    pub fault_seconds: f64,
    /// Number of faults that are handled together and share that time.
    pub faults_at_once: u32,
}

impl Default for UvmModel {
    /// 64 KiB pages over PCIe 4 x16 (about 25 GB/s); 20 us a fault, the lower end of the 20 to 50 us of Zheng 2016
    /// ("Towards High Performance Paged Memory for GPUs"), for 256 faults at once, as NVIDIA's driver fetches them
    /// (`uvm_perf_fault_batch_count`).
    fn default() -> Self {
        Self { page_bytes: 64 << 10, bus_bytes_per_second: 25e9, fault_seconds: 20e-6, faults_at_once: 256 }
    }
}

impl UvmModel {
    /// Seconds to move `moved`. Both directions run at once; faults are handled in groups.
    #[must_use]
    pub fn seconds(&self, moved: &UvmTraffic) -> f64 {
        let bus = moved.bytes_in.max(moved.bytes_out) as f64 / self.bus_bytes_per_second;
        bus + moved.pages_in.div_ceil(u64::from(self.faults_at_once.max(1))) as f64 * self.fault_seconds
    }
}

/// Pages that moved, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UvmTraffic {
    /// Pages brought to the device, each by a fault.
    pub pages_in: u64,
    /// Changed pages written back.
    pub pages_out: u64,
    /// Bytes to the device.
    pub bytes_in: u64,
    /// Bytes from the device.
    pub bytes_out: u64,
}

impl UvmTraffic {
    pub(super) const fn of(pages_in: u64, pages_out: u64, page_bytes: u64) -> Self {
        Self { pages_in, pages_out, bytes_in: pages_in * page_bytes, bytes_out: pages_out * page_bytes }
    }
}

impl Add for UvmTraffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            pages_in: self.pages_in + other.pages_in,
            pages_out: self.pages_out + other.pages_out,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
        }
    }
}

impl AddAssign for UvmTraffic {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_and_faults_take_their_time() {
        let model = UvmModel { page_bytes: 4096, bus_bytes_per_second: 4096e3, fault_seconds: 1e-2, faults_at_once: 2 };
        let seconds = |pages_in, pages_out| model.seconds(&UvmTraffic::of(pages_in, pages_out, 4096));
        assert!((seconds(3, 0) - 23e-3).abs() < 1e-12, "3 ms of bus, two groups of faults");
        assert!((seconds(0, 5) - 5e-3).abs() < 1e-12, "what goes back faults nothing");
        assert!((seconds(3, 5) - 25e-3).abs() < 1e-12, "both directions at once");
        let free = UvmModel { fault_seconds: 0.0, ..model };
        assert!((free.seconds(&UvmTraffic::of(3, 0, 4096)) - 3e-3).abs() < 1e-12);
    }
}
