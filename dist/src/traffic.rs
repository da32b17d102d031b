//! Words that a rank sends to others, by phase and receiver.

/// The phases of a step (SPEC 11).
/// Example: [`WireOptions`](crate::WireOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Status, and numbers of rows.
    Counts,
    /// Rows and their counts.
    Requests,
    /// Lengths of answers.
    Sizes,
    /// Rows, packed or in FP32.
    Rows,
    /// Gradients of bags, and which accesses they are for.
    Gradients,
}

impl Phase {
    /// Every phase, in the order of a step.
    pub const ALL: [Self; 5] = [Self::Counts, Self::Requests, Self::Sizes, Self::Rows, Self::Gradients];

    /// The name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Requests => "requests",
            Self::Sizes => "sizes",
            Self::Rows => "rows",
            Self::Gradients => "gradients",
        }
    }
}

/// What one rank has sent to each other rank. What it keeps for itself is not counted.
///
/// Example: [`WireOptions`](crate::WireOptions).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankTraffic {
    words: Vec<[u64; 5]>,
    messages: Vec<[u64; 5]>,
}

impl RankTraffic {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { words: vec![[0; 5]; ranks as usize], messages: vec![[0; 5]; ranks as usize] }
    }

    pub(crate) fn count(&mut self, phase: Phase, own: u32, parts: &[Vec<u32>]) {
        for (rank, part) in parts.iter().enumerate() {
            if rank != own as usize && !part.is_empty() {
                self.words[rank][phase as usize] += part.len() as u64;
                self.messages[rank][phase as usize] += 1;
            }
        }
    }

    /// The bytes of a phase, to all ranks.
    #[must_use]
    pub fn bytes(&self, phase: Phase) -> u64 {
        self.words.iter().map(|words| 4 * words[phase as usize]).sum()
    }

    /// The bytes of a phase that went to a rank; 0 if there is no such rank.
    #[must_use]
    pub fn bytes_to(&self, phase: Phase, rank: u32) -> u64 {
        self.words.get(rank as usize).map_or(0, |words| 4 * words[phase as usize])
    }

    /// The number of messages of a phase, to all ranks; empty ones are not sent.
    #[must_use]
    pub fn messages(&self, phase: Phase) -> u64 {
        self.messages.iter().map(|messages| messages[phase as usize]).sum()
    }
}
