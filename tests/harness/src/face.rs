//! The calls of [`Lookup`] on any table: outputs in the caller's slice, counters without waiting, its whole state.

use hotrow::{Error, Lookup, LookupKind, Snapshot, robe::RobeSnapshot};

/// The whole state of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Rows(Snapshot),
    Array(RobeSnapshot),
}

/// The state of a cached table, or of a shared array.
///
/// # Errors
/// Those of the table.
pub fn state(table: &mut dyn Lookup) -> Result<State, Error> {
    Ok(match table.kind() {
        LookupKind::Rows(rows) => State::Rows(rows.snapshot()?),
        LookupKind::Shared(array) => State::Array(array.snapshot()?),
        _ => unreachable!("a table of one rank"),
    })
}

/// Checks the calls below on tables with 8 rows or more.
pub fn calls<T: Lookup>(new: impl Fn() -> T) {
    outputs_in_slices(&mut new(), &mut new());
    counters_arrive(&mut new());
}

/// Outputs in a slice equal outputs in a vector, and a slice of a wrong length is refused. `table` and `twin` are equal.
fn outputs_in_slices(table: &mut dyn Lookup, twin: &mut dyn Lookup) {
    let (indices, offsets) = (&[1, 5, 5, 7][..], &[0, 1, 1, 4][..]);
    let mut outputs = vec![f32::NAN; table.output_len(indices.len(), offsets.len() - 1)];
    for frozen in [true, false] {
        for wrong in [outputs.len() - 1, outputs.len() + 1] {
            let before = table.counters().unwrap();
            let mut other = vec![0.5; wrong];
            let refused = match frozen {
                true => table.forward_frozen_into(indices, offsets, None, &mut other),
                false => table.forward_into(indices, offsets, None, &mut other),
            };
            let [wanted, found] = [outputs.len(), wrong].map(|len| len as u64);
            assert_eq!(refused, Err(Error::Length { what: "outputs", wanted, found }));
            assert!(other.iter().all(|&x| x == 0.5) && table.counters().unwrap() == before && !table.pending());
        }
        let wanted = match frozen {
            true => twin.forward_frozen(indices, offsets, None),
            false => twin.forward(indices, offsets, None),
        };
        match frozen {
            true => table.forward_frozen_into(indices, offsets, None, &mut outputs).unwrap(),
            false => table.forward_into(indices, offsets, None, &mut outputs).unwrap(),
        }
        assert_eq!(outputs, wanted.unwrap());
    }
    assert!(table.pending());
    table.backward(&outputs).unwrap();
    // A skipped step leaves the slice as it is.
    let before = outputs.clone();
    let skipped = table.forward_into(&[1, 5, 5, u32::MAX], offsets, None, &mut outputs);
    assert!(matches!(skipped, Err(Error::IndexOutOfRange { position: 3, .. })), "{skipped:?}");
    assert_eq!(outputs, before);
}

/// Counters arrive without a call that waits, and equal the counters of a call that waits.
fn counters_arrive(table: &mut dyn Lookup) {
    let wanted: Vec<u64> = (1..=3)
        .map(|_| {
            table.forward(&[1, 2, 2], &[0, 3], None).unwrap();
            table.counters().unwrap()[0].accesses
        })
        .collect();
    let newest = table.counters().unwrap();
    // The device answers when it is polled; each call polls once.
    for _ in 0..10_000 {
        match table.try_counters().unwrap() {
            Some(seen) if seen == newest => return,
            Some(seen) => assert!(wanted.contains(&seen[0].accesses), "{seen:?}"),
            None => {}
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no counters within 10 seconds");
}
