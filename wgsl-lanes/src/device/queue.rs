//! The queue: runs what was recorded.

use std::{io::Write as _, sync::Arc};

use wgpu::custom::{
    BoxSubmittedWorkDoneCallback, DispatchBlas, DispatchBuffer, DispatchCommandBuffer, DispatchQueueWriteBuffer,
    DispatchSurfaceOutputDetail, QueueInterface,
};

use super::{
    buffer::Words,
    code::{Code, lock},
    commands::{Command, LaneCommands, buffer},
    config::{Config, Findings},
    kernel::Entry,
    world::{Recording, World},
};
use crate::{
    findings::{Fault, Finding, Raw},
    run::{Bound, Options, Order, dispatch},
};

#[derive(Debug)]
pub(super) struct LaneQueue {
    pub(super) world: Arc<World>,
}

impl LaneQueue {
    fn run(&self, command: Command) {
        match command {
            Command::Copy { from, first, to, at, count } => {
                let words = lock(&from)[first..first + count].to_vec();
                Arc::make_mut(&mut lock(&to))[at..at + count].copy_from_slice(&words);
            }
            Command::Clear { words, first, count } => {
                Arc::make_mut(&mut lock(&words))[first..first + count].fill(0);
            }
            Command::Dispatch { code, entries, groups } => self.dispatch(&code, &entries, groups),
        }
    }

    fn dispatch(&self, code: &Arc<Code>, entries: &[Entry], groups: [u32; 3]) {
        if groups.contains(&0) {
            return;
        }
        let config = &self.world.config;
        // One buffer may be bound at several places.
        let mut owners: Vec<&Words> = Vec::new();
        let mut bindings = Vec::new();
        for entry in entries {
            let known = owners.iter().position(|&words| Arc::ptr_eq(words, &entry.words));
            let buffer = known.unwrap_or(owners.len());
            if known.is_none() {
                owners.push(&entry.words);
            }
            bindings.push(Bound { binding: entry.binding, buffer, first: entry.first, words: entry.count });
        }
        let (_, program) = code.made();
        let writes = |buffer: usize| {
            let bound = program.bindings.iter().filter(|declared| declared.writes);
            let mut bound =
                bound.filter_map(|declared| bindings.iter().find(|bound| bound.binding == declared.binding));
            bound.any(|bound| bound.buffer == buffer)
        };
        let take = |(buffer, &words): (usize, &&Words)| match writes(buffer) {
            true => std::mem::take(&mut *lock(words)),
            false => lock(words).clone(),
        };
        let mut buffers: Vec<Arc<Vec<u32>>> = owners.iter().enumerate().map(take).collect();
        let recorded = (config.record > 0).then(|| buffers.clone());
        let before = config.twice.then(|| buffers.clone());
        let submitted = *lock(&self.world.submitted);
        let options = Options { seed: config.options.seed ^ submitted.wrapping_mul(0x9E37_79B9), ..config.options };
        let outcome = dispatch(program, &mut buffers, &bindings, groups, &options);
        if let Some(buffers) = recorded {
            let (code, bindings) = (code.clone(), bindings.clone());
            let recording = Recording { project: config.project, code, buffers, bindings, groups };
            self.world.record(recording, &outcome.pairs);
        }
        let mut found = outcome.found;
        if let Some(mut again) = before {
            let order = if options.order == Order::Descending { Order::Ascending } else { Order::Descending };
            let options = Options { order, ..options };
            let second = dispatch(program, &mut again, &bindings, groups, &options);
            found.extend(second.found);
            for bound in &bindings {
                let declared = program.bindings.iter().find(|declared| declared.binding == bound.binding);
                let name = declared.map_or("", |declared| &declared.name);
                let (a, b) = (&buffers[bound.buffer], &again[bound.buffer]);
                let differs = (bound.first..bound.first + bound.words).find(|&at| a[at] != b[at]);
                let ordered = config.project.ordered();
                let may_vary = ordered.iter().any(|ordered| ordered.kernel == code.name && ordered.binding == name);
                if let Some(at) = differs.filter(|_| !may_vary) {
                    let place = |&line: &u32| config.project.files().place(&code.text, line);
                    let results: Vec<String> = program.used_results.iter().map(place).collect();
                    let detail = format!(
                        "word {} of {name} is {} or {}, by the order; results of atomic operations are used at {}",
                        at - bound.first,
                        a[at],
                        b[at],
                        results.join(", "),
                    );
                    found.push(Raw { fault: Fault::Order, line: 0, other: 0, workgroup: 0, lane: 0, detail });
                }
            }
        }
        lock(&self.world.report).counts.entry(code.name.clone()).or_default().add(&outcome.counts);
        if options.counting {
            lock(&self.world.report).dispatches.push((code.name.clone(), outcome.counts));
        }
        let back: Vec<bool> = (0..buffers.len()).map(writes).collect();
        for ((words, buffer), _) in owners.iter().zip(buffers).zip(back).filter(|&(_, back)| back) {
            *lock(words) = buffer;
        }
        self.report(code, &found);
    }

    /// Adds findings to the report, and does with them what the test wants.
    fn report(&self, code: &Code, found: &[Raw]) {
        let Config { project, findings, .. } = self.world.config;
        let known = |finding: &Finding| project.known().iter().any(|known| known.is(finding));
        let mut new = Vec::new();
        for raw in found {
            let finding = Finding::of(&code.made().0, project.files(), raw);
            if lock(&self.world.report).add(finding.clone()) && !known(&finding) {
                new.push(finding.to_string());
            }
        }
        // A test that spoils a text compares its results, and says itself whether that is noticed.
        if new.is_empty() || findings == Findings::Keep || !project.own(&code.name, &code.text) {
            return;
        }
        if findings == Findings::Print {
            let _shown = writeln!(std::io::stderr().lock(), "{}", new.join("\n"));
            return;
        }
        // In each test, not only in the first that meets it.
        lock(&self.world.report).findings.retain(known);
        panic!("the lane executor found:\n{}", new.join("\n"));
    }
}

impl QueueInterface for LaneQueue {
    fn write_buffer(&self, target: &DispatchBuffer, offset: u64, data: &[u8]) {
        assert!(offset.is_multiple_of(4) && data.len().is_multiple_of(4), "wanted whole words");
        let target = buffer(target);
        assert!(offset + data.len() as u64 <= target.bytes, "a write beyond the buffer");
        let mut words = lock(&target.words);
        let words: &mut Vec<u32> = Arc::make_mut(&mut words);
        bytemuck::cast_slice_mut::<u32, u8>(words)[offset as usize..][..data.len()].copy_from_slice(data);
    }

    fn submit(&self, buffers: &mut dyn Iterator<Item = DispatchCommandBuffer>) -> u64 {
        for buffer in buffers {
            let buffer: &LaneCommands = buffer.as_custom().unwrap_or_else(|| panic!("commands of another device"));
            let commands = std::mem::take(&mut *lock(&buffer.commands));
            commands.into_iter().for_each(|command| self.run(command));
        }
        let mut submitted = lock(&self.world.submitted);
        *submitted += 1;
        *submitted
    }

    fn get_timestamp_period(&self) -> f32 {
        1.0
    }

    fn on_submitted_work_done(&self, callback: BoxSubmittedWorkDoneCallback) {
        callback();
    }

    absent! {
        fn create_staging_buffer(&self, _: wgpu::BufferSize) -> Option<DispatchQueueWriteBuffer>;
        fn validate_write_buffer(&self, _: &DispatchBuffer, _: u64, _: wgpu::BufferSize) -> Option<()>;
        fn write_staging_buffer(&self, _: &DispatchBuffer, _: u64, _: &DispatchQueueWriteBuffer);
        fn write_texture(&self, _: wgpu::TexelCopyTextureInfo<'_>, _: &[u8], _: wgpu::TexelCopyBufferLayout, _: wgpu::Extent3d);
        fn compact_blas(&self, _: &DispatchBlas) -> (Option<u64>, DispatchBlas);
        fn present(&self, _: &DispatchSurfaceOutputDetail);
    }
}
