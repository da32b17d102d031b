//! Agreements of all ranks about a call: whether it worked everywhere, and whose error it is if not.

use hotrow::{Error, ScalerState};

use crate::comm::Comm;

/// Ends the job after an error that the other ranks do not know of. A rank that is alone goes on.
pub(crate) fn or_abort<T>(comm: &mut impl Comm, result: Result<T, Error>) -> Result<T, Error> {
    if let Err(error) = &result
        && comm.size() > 1
        && !matches!(error, Error::Rank { .. })
    {
        comm.abort(&error.to_string());
    }
    result
}

/// Whether a part of a call that all ranks make worked on all of them. Returns this rank's error, or that of the first rank that has one.
pub(crate) fn agree(comm: &mut impl Comm, result: Result<(), Error>) -> Result<(), Error> {
    let failed = comm.max(u32::from(result.is_err()));
    if or_abort(comm, failed)? == 0 { Ok(()) } else { all_fail(comm, result) }
}

/// The error of a part of a call that did not work on all ranks. All ranks call this.
pub(crate) fn all_fail(comm: &mut impl Comm, result: Result<(), Error>) -> Result<(), Error> {
    let first = first_refused(comm, result.is_err());
    let rank = or_abort(comm, first)?;
    let error = refusal(comm, rank, result.err());
    Err(or_abort(comm, error)?)
}

/// As [`agree`], and whether all ranks have one decision about a scaled loss.
pub(crate) fn agree_scaled(comm: &mut impl Comm, result: Result<(), Error>, scaler: &ScalerState) -> Result<(), Error> {
    let own = [u32::from(result.is_err()), scaler.inverse.to_bits(), scaler.overflow];
    let all = comm.all_gather(&own);
    let all = or_abort(comm, all)?;
    if all.iter().step_by(own.len()).any(|&failed| failed != 0) {
        return all_fail(comm, result);
    }
    let Some(rank) = all.chunks_exact(own.len()).position(|other| other != own) else { return Ok(()) };
    let shown = |words: &[u32]| format!("1/{}, overflow {}", f32::from_bits(words[1]).recip(), words[2]);
    Err(Error::Exchange {
        what: "scaler",
        wanted: format!("one decision on all ranks, here a factor of {}", shown(&own)),
        found: format!("{} on rank {rank}", shown(&all[own.len() * rank..])),
        remedy: "let each rank's scaler inspect the greatest magnitude of all ranks: Comm::max of its bits",
    })
}

/// The first rank that refused a call. All ranks call this.
fn first_refused(comm: &mut impl Comm, own: bool) -> Result<u32, Error> {
    let last = comm.size() - 1;
    let rank = if own { last - comm.rank() } else { 0 };
    Ok(last - comm.max(rank)?)
}

/// The error of a batch that `rank`, the first of perhaps several, refused. All ranks call this.
pub(crate) fn refusal(comm: &mut impl Comm, rank: u32, own: Option<Error>) -> Result<Error, Error> {
    let text = own.as_ref().map_or_else(String::new, Error::to_string);
    let lengths = comm.all_gather(&[text.len() as u32])?;
    let most = lengths.iter().max().map_or(0, |&most| most as usize).div_ceil(4);
    let mut bytes = text.into_bytes();
    bytes.resize(4 * most, 0);
    let all = comm.all_gather(&bytemuck::pod_collect_to_vec::<u8, u32>(&bytes))?;
    if let Some(error) = own {
        return Ok(error);
    }
    let text: &[u8] = bytemuck::cast_slice(&all[rank as usize * most..][..most]);
    let reason = String::from_utf8_lossy(&text[..lengths[rank as usize] as usize]).into_owned();
    Ok(Error::Rank { rank, reason })
}
