//! The fuzz engine on one target, which `HOTROW_FUZZ` names. `scripts/fuzz` builds and runs it.
#![no_main]

use std::{fs, path::Path, sync::LazyLock};

use hotrow_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("HOTROW_FUZZ").unwrap_or_default();
    Target::named(&name)
        .unwrap_or_else(|| panic!("HOTROW_FUZZ: wanted one of {:?}, found {name:?}", hotrow_fuzz::TARGETS))
});

libfuzzer_sys::fuzz_target!(
    init: {
        // The engine reads this folder when the seeds are there.
        if let Some(folder) = std::env::var_os("HOTROW_FUZZ_SEEDS") {
            for (number, seed) in hotrow_fuzz::seeds(TARGET.name).iter().enumerate() {
                let _ = fs::write(Path::new(&folder).join(format!("seed-{number}")), seed);
            }
        }
    },
    |data: &[u8]| {
        let _either = TARGET.run(data);
    }
);
