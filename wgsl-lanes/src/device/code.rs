//! The code of kernels, made once for each text.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{program::Program, source::Source};

/// Takes a lock, even one that a failed test left behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel's text, entry point and constants, and its code once a dispatch needs it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(super) text: String,
    entry: Option<String>,
    constants: Vec<(String, f64)>,
    made: OnceLock<(Source, Program)>,
}

impl Code {
    pub(crate) fn made(&self) -> &(Source, Program) {
        self.made.get_or_init(|| {
            let constants: Vec<(&str, f64)> = self.constants.iter().map(|(name, value)| (&**name, *value)).collect();
            let source = Source::new(&self.name, self.entry.as_deref(), &self.text, &constants);
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let program = source.program();
            (source, program)
        })
    }
}

/// The code of a kernel; the same text is parsed once, whatever device asks for it.
pub(super) fn code(name: &str, entry: Option<&str>, text: &str, constants: &[(&str, f64)]) -> Arc<Code> {
    type Key = (String, Option<String>, String, Vec<(String, u64)>);
    static KNOWN: OnceLock<Mutex<HashMap<Key, Arc<Code>>>> = OnceLock::new();
    let (name, entry, text) = (name.to_owned(), entry.map(str::to_owned), text.to_owned());
    let bits = constants.iter().map(|&(name, value)| (name.to_owned(), value.to_bits())).collect();
    let mut known = lock(KNOWN.get_or_init(Mutex::default));
    let made = known.entry((name.clone(), entry.clone(), text.clone(), bits)).or_insert_with(|| {
        let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Arc::new(Code { name, text, entry, constants, made: OnceLock::new() })
    });
    made.clone()
}
