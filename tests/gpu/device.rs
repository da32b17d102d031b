//! One device for all tests, or the reason why there is none.

use std::{io::Write as _, sync::OnceLock};

use hotrow::{Context, adapter};

fn context() -> Result<&'static Context, &'static str> {
    static CONTEXT: OnceLock<Result<Context, String>> = OnceLock::new();
    let made = CONTEXT.get_or_init(|| {
        let mode = std::env::var("HOTROW_TEST_GPU").unwrap_or_else(|_| "allow".into());
        if mode == "off" {
            return Err("HOTROW_TEST_GPU=off".into());
        }
        assert!(mode == "allow" || mode == "require", "HOTROW_TEST_GPU: wanted require, allow or off, found {mode}");
        let opened = adapter::open_best(adapter::Wanted::Any);
        if let (Err(error), "require") = (&opened, mode.as_str()) {
            panic!("HOTROW_TEST_GPU=require: {error}");
        }
        let context = opened.map_err(|error| error.to_string())?;
        let caps = context.caps();
        tell(&format!("GPU tests on {} ({:?}), subgroup {:?}", caps.name, caps.backend, caps.subgroup));
        Ok(context)
    });
    made.as_ref().map_err(String::as_str)
}

/// Runs `test` on the device, or prints why it is skipped.
pub(crate) fn with_gpu(test: impl FnOnce(&Context)) {
    match context() {
        Ok(context) => test(context),
        Err(reason) => skipped(&format!("a GPU test: {reason}")),
    }
}

/// Past libtest, which keeps what a passing test prints to itself.
fn tell(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap();
}

/// Says loudly that something was not tested.
pub(crate) fn skipped(what: &str) {
    tell(&format!("SKIPPED: {what}"));
}
