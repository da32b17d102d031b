//! One device for all tests, or the reason why there is none.

use std::{io::Write as _, sync::OnceLock};

use hotrow::{Context, ContextOptions, Error, Shaders, adapter};

/// What `HOTROW_TEST_SHADERS=checked|trusted` asks for: the suite passes in both modes.
pub(crate) fn options() -> ContextOptions {
    let shaders = match std::env::var("HOTROW_TEST_SHADERS").as_deref() {
        Err(_) | Ok("checked") => Shaders::Checked,
        Ok("trusted") => Shaders::Trusted,
        Ok(other) => panic!("HOTROW_TEST_SHADERS: wanted checked or trusted, found {other}"),
    };
    ContextOptions::default().shaders(shaders)
}

/// Another context on the same device.
pub(crate) fn again(context: &Context, options: &ContextOptions) -> Context {
    Context::with_options(context.device(), context.queue(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn context() -> Result<&'static Context, &'static str> {
    static CONTEXT: OnceLock<Result<Context, String>> = OnceLock::new();
    let made = CONTEXT.get_or_init(|| {
        let mode = std::env::var("HOTROW_TEST_GPU").unwrap_or_else(|_| "allow".into());
        if mode == "off" {
            return Err("HOTROW_TEST_GPU=off".into());
        }
        assert!(mode == "allow" || mode == "require", "HOTROW_TEST_GPU: wanted require, allow or off, found {mode}");
        let opened = match adapter::open_best(adapter::Wanted::Any) {
            Ok(context) => context,
            // Only that there is none is a reason to skip: one that cannot be made use of is what the tests are for.
            Err(error @ Error::Unsupported { what: "gpu", .. }) if mode == "allow" => return Err(error.to_string()),
            Err(error) => panic!("HOTROW_TEST_GPU={mode}: {error}"),
        };
        let context = if options() == ContextOptions::default() { opened } else { again(&opened, &options()) };
        let caps = context.caps();
        tell(&format!(
            "GPU tests on {} ({:?}), subgroup {:?}, {:?}",
            caps.name,
            caps.backend,
            caps.subgroup,
            context.shaders()
        ));
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
