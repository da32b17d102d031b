//! The lists that the page kernels read for one round: the place of each row, grouped by bag or by row.

use super::residency::{Round, UvmTable};

/// The work of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Sum rows into bags.
    Gather,
    /// Update rows by the gradients of bags.
    Update,
}

/// The storage buffers that `pages.wgsl` describes.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) frames: Vec<u32>,
    pub(super) groups: Vec<[u32; 4]>,
    pub(super) entries: Vec<[u32; 2]>,
}

impl Lists {
    pub(super) fn of(table: &UvmTable, round: &Round, rows: &[u32], offsets: &[u32], pass: Pass) -> Self {
        let row = |access: u32| rows[access as usize];
        let bag = |access: u32| offsets.partition_point(|&offset| offset <= access) as u32 - 1;
        let mut accesses = round.accesses.clone();
        match pass {
            Pass::Gather => accesses.sort_unstable(),
            Pass::Update => accesses.sort_unstable_by_key(|&access| (row(access), access)),
        }
        let mut lists = Self::default();
        let mut last = None;
        for access in accesses {
            let group = if pass == Pass::Gather { bag(access) } else { row(access) };
            let here = lists.entries.len() as u32;
            if last != Some(group) {
                last = Some(group);
                let [x, y] = if pass == Pass::Gather { [group, 0] } else { lists.place(table, group) };
                lists.groups.push([x, y, here, here]);
            }
            let entry = if pass == Pass::Gather { lists.place(table, row(access)) } else { [bag(access), 0] };
            lists.entries.push(entry);
            if let Some(group) = lists.groups.last_mut() {
                group[3] = here + 1;
            }
        }
        lists
    }

    /// Appends the frames of a row. Returns their position in the list, and the row's first word in its first page.
    fn place(&mut self, table: &UvmTable, row: u32) -> [u32; 2] {
        let first = self.frames.len() as u32;
        // Every page of a round is resident.
        self.frames.extend(table.pages(row).filter_map(|page| table.frame(page)));
        [first, (u64::from(row) * table.row_bytes() % table.model().page_bytes / 4) as u32]
    }
}
