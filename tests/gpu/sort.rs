//! The sort and the dedup as a program outside the crate uses them: with its own encoder and its own buffers.

use hotrow::{
    Context, Error, Sorter, adapter,
    internals::layout::NONE,
    wgpu::{self, BufferUsages, util::DeviceExt as _},
};
use rand::RngExt as _;

use crate::{
    caller,
    dedup::{expected, rng},
};
use hotrow_harness::{device::skipped, gpu_test};

fn upload(context: &Context, words: &[u32], usage: BufferUsages) -> wgpu::Buffer {
    let contents = bytemuck::cast_slice(words);
    context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
}

/// Submits `encoder` and reads the first `n` words of each buffer.
fn read<const N: usize>(
    context: &Context,
    mut encoder: wgpu::CommandEncoder,
    buffers: [(&wgpu::Buffer, usize); N],
) -> [Vec<u32>; N] {
    let copies = buffers.map(|(from, n)| {
        let size = 4 * n.max(1) as u64;
        let copy = caller::buffer(context, size, BufferUsages::COPY_SRC | BufferUsages::COPY_DST);
        encoder.copy_buffer_to_buffer(from, 0, &copy, 0, size);
        (copy, n)
    });
    context.queue().submit([encoder.finish()]);
    copies.map(|(copy, n)| caller::download(context, caller::encoder(context), &copy)[..n].to_vec())
}

/// The pairs, sorted by the low bits of their keys with the standard library's stable sort.
fn sorted(keys: &[u32], values: &[u32], key_bits: u32) -> (Vec<u32>, Vec<u32>) {
    let mut pairs: Vec<(u32, u32)> = keys.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_by_key(|pair| u64::from(pair.0) & ((1 << key_bits) - 1));
    pairs.into_iter().unzip()
}

#[gpu_test]
fn pairs_of_any_number_and_key_width(context: &Context) {
    let sorter = Sorter::new(context, 10_000).unwrap();
    assert_eq!(sorter.capacity(), 10_000);
    for (n, key_bits) in [0, 1, 900, 1024, 1025, 3073, 10_000].into_iter().zip([32, 0, 7, 20, 24, 9, 33]) {
        let mut source = rng(n);
        let n = n as usize;
        let mut words = || (0..10_000).map(|_| source.random()).collect::<Vec<u32>>();
        let (words_of_keys, values) = (words(), words());
        // Slices of buffers, and a number of keys below the slices' length.
        let skip = context.caps().offset_alignment as usize / 4;
        let n = n.min(values.len() - skip);
        let count = upload(context, &[9, n as u32], BufferUsages::COPY_SRC);
        let key_buffer = upload(context, &words_of_keys, BufferUsages::STORAGE);
        let value_buffer = upload(context, &values, BufferUsages::STORAGE);
        let (key_slice, value_slice) = (key_buffer.slice(4 * skip as u64..), value_buffer.slice(4 * skip as u64..));
        for (keys, counted) in [(key_slice.slice(..4 * n as u64), None), (key_slice, Some(count.slice(4..)))] {
            let mut encoder = caller::encoder(context);
            let [keys_to, values_to] =
                sorter.encode_sort(&mut encoder, keys, Some(value_slice), counted, key_bits).unwrap();
            let [found_keys, found_values] = read(context, encoder, [(keys_to, n), (values_to, n)]);
            let wanted = sorted(&words_of_keys[skip..skip + n], &values[skip..skip + n], key_bits.min(32));
            assert!((found_keys, found_values) == wanted, "{n} keys of {key_bits} bits, {counted:?}");
        }
    }
}

#[gpu_test]
fn dedups_one_after_the_other(context: &Context) {
    let sorter = Sorter::new(context, 5000).unwrap();
    for n in [5000, 0, 1, 1024, 1025, 5000] {
        let mut source = rng(n);
        let n = n as usize;
        let keys: Vec<u32> = (0..5000).map(|i| if i % 7 == 0 { NONE } else { source.random_range(0..900) }).collect();
        let buffer = upload(context, &keys, BufferUsages::STORAGE);
        let count = upload(context, &[n as u32], BufferUsages::COPY_SRC);
        let wanted = expected(&keys, n);
        for (slice, counted) in [(buffer.slice(..4 * n as u64), None), (buffer.slice(..), Some(count.slice(..)))] {
            let mut encoder = caller::encoder(context);
            let found = sorter.encode_dedup(&mut encoder, slice, None, counted, 10).unwrap();
            let (distinct, valid) = (wanted.starts.len(), wanted.segment.len());
            let arrays = [
                (found.keys, n),
                (found.values, n),
                (found.segment, valid),
                (found.starts, distinct),
                (found.counts, 2),
            ];
            let [keys, order, segment, starts, counts] = read(context, encoder, arrays);
            assert_eq!(counts, [distinct as u32, valid as u32], "{n} keys, {counted:?}");
            let found = hotrow::internals::Deduped { keys, order, segment, starts };
            assert!(found == wanted, "{n} keys, {counted:?}");
        }
    }
}

/// If the device's count is larger than the buffer of keys, the sort takes as many keys as the buffer holds.
#[gpu_test]
fn a_count_beyond_the_keys(context: &Context) {
    for n in [600u32, 4000] {
        let keys: Vec<u32> = (0..n).rev().collect();
        let buffer = upload(context, &keys, BufferUsages::STORAGE);
        let count = upload(context, &[u32::MAX], BufferUsages::COPY_SRC);
        let sorter = Sorter::new(context, n + 10).unwrap();
        let mut encoder = caller::encoder(context);
        let found = sorter.encode_dedup(&mut encoder, buffer.slice(..), None, Some(count.slice(..)), 32).unwrap();
        let [keys, counts] = read(context, encoder, [(found.keys, n as usize), (found.counts, 2)]);
        assert_eq!(keys, (0..n).collect::<Vec<_>>());
        assert_eq!(counts, [n, n]);
    }
}

#[gpu_test]
fn buffers_that_cannot_be(context: &Context) {
    let sorter = Sorter::new(context, 100).unwrap();
    let keys = upload(context, &[0; 200], BufferUsages::STORAGE);
    let plain = upload(context, &[0; 200], BufferUsages::COPY_DST);
    let mut encoder = caller::encoder(context);
    let mut told = |keys: wgpu::BufferSlice<'_>, values: Option<wgpu::BufferSlice<'_>>, n: Option<_>| {
        let dedup = sorter.encode_dedup(&mut encoder, keys, values, n, 32).map(drop);
        let sort = sorter.encode_sort(&mut encoder, keys, values, n, 32).map(drop);
        assert_eq!(sort, dedup);
        match sort {
            Err(Error::Buffer { what, wanted, .. }) => format!("{what}: {wanted}"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(plain.slice(..400), None, None), "keys: usage STORAGE");
    assert_eq!(told(keys.slice(..400), Some(plain.slice(..)), None), "values: usage STORAGE");
    assert_eq!(told(keys.slice(..404), None, None), "keys: at most 100 keys, for which the sorter was made");
    assert_eq!(told(keys.slice(..400), Some(keys.slice(..396)), None), "values: 400 bytes");
    assert!(told(keys.slice(4..404), None, None).starts_with("keys: an offset that is a multiple of"));
    assert_eq!(told(keys.slice(..399), None, None), "keys: a whole number of 4-byte entries");
    assert_eq!(told(keys.slice(..400), None, Some(plain.slice(..))), "count: usage COPY_SRC");
    let source = upload(context, &[3; 4], BufferUsages::COPY_SRC);
    assert_eq!(told(keys.slice(..400), None, Some(source.slice(..3))), "count: 4 bytes");
    assert_eq!(told(keys.slice(..400), None, Some(source.slice(2..8))), "count: an offset that is a multiple of 4");
    assert!(told(keys.slice(..404), None, Some(source.slice(..))).starts_with("keys: at most 100 keys"));
    // The right buffers are accepted, but not the sorter's own results.
    let sorted = sorter.encode_sort(&mut encoder, keys.slice(..400), None, None, 32).unwrap();
    for which in sorted {
        let refused = sorter.encode_sort(&mut encoder, which.slice(..400), None, None, 32);
        refuses!(refused, Error::Buffer { what: "keys", .. });
    }
    context.queue().submit([encoder.finish()]);
}

/// The comparison must notice a sort that is not stable, and a sort by other bits.
#[test]
fn wrong_results_are_told_apart() {
    let (keys, values) = ([2, 1, 2, 1 << 8], [10, 20, 30, 40]);
    let right = sorted(&keys, &values, 8);
    assert_eq!(right, (vec![1 << 8, 1, 2, 2], vec![40, 20, 10, 30]));
    let mut unstable = right.clone();
    unstable.1.swap(2, 3);
    assert_ne!(unstable, right);
    assert_ne!(sorted(&keys, &values, 9), right);
}

/// The test opens its own device, so that the buffers of other tests do not count.
#[gpu_test]
fn a_sorter_gives_its_memory_back(_: &Context) {
    let context = adapter::open_best().unwrap();
    let held = || {
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let report = context.device().generate_allocator_report()?;
        let ours = report.allocations.iter().filter(|one| one.name.starts_with("hotrow.sorted"));
        Some(ours.map(|one| one.size).sum::<u64>())
    };
    let Some(before) = held() else {
        skipped("what a sorter holds: this backend tells nothing of its allocations");
        return;
    };
    let keys = upload(&context, &[3; 5000], BufferUsages::STORAGE);
    let sorter = Sorter::new(&context, 5000).unwrap();
    caller::submit(&context, |encoder| {
        sorter.encode_dedup(encoder, keys.slice(..), None, None, 32).map(drop).unwrap();
    });
    assert!(held() >= Some(before + 4 * 4 * 5000), "{:?} is what a sorter in use holds", held());
    drop(sorter);
    assert_eq!(held(), Some(before));
}
