//! What a project says of its own kernels: their names, the files of their texts, and what is expected of them, with reasons.

use std::fmt::Debug;

use crate::{
    files::Files,
    findings::{Fault, Finding},
};

/// What a project says of its own kernels. Each method has an answer for a project of which nothing is known.
pub trait Project: Debug + Send + Sync {
    /// The name of the kernel whose pipeline has this label.
    fn kernel<'a>(&self, label: &'a str) -> &'a str {
        label
    }

    /// Whether the project itself makes this text of a kernel. Findings in another, which a test has spoiled, stand in the report and fail nothing.
    fn own(&self, _kernel: &str, _text: &str) -> bool {
        true
    }

    /// The files of which texts are composed.
    fn files(&self) -> &Files {
        static NONE: Files = Files::NONE;
        &NONE
    }

    /// The findings that are expected, which fail nothing.
    fn known(&self) -> &[Known] {
        &[]
    }

    /// The bindings whose words may depend on the order of atomic operations.
    fn ordered(&self) -> &[Ordered] {
        &[]
    }
}

/// A project of which nothing is known.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Project for Nothing {}

/// An expected finding.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its kind.
    pub fault: Fault,
    /// The kernel's name.
    pub kernel: &'static str,
    /// A part of the line at which it is found, which stays when other lines move.
    pub text: &'static str,
    /// Why it is expected.
    pub reason: &'static str,
}

impl Known {
    /// True if this entry is about a finding.
    #[must_use]
    pub fn is(&self, finding: &Finding) -> bool {
        self.fault == finding.fault && self.kernel == finding.kernel && finding.detail.contains(self.text)
    }
}

/// A binding whose words may depend on the order of atomic operations.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The variable's name.
    pub binding: &'static str,
    /// Why any order is right.
    pub reason: &'static str,
}
