//! The shaders with and without wgpu's runtime checks, whatever mode the rest of the suite runs in.

use hotrow::{Context, ContextOptions, internals::RankBody};

use hotrow_harness::{device::again, gpu_test, lockstep, sample_seeds};

fn in_each_mode(test: impl Fn(&Context)) {
    for trusted in [false, true] {
        let context =
            again(&ContextOptions::default().trusted_shaders(trusted).shared_pipelines(false).rank(RankBody::Portable));
        assert_eq!(context.trusted_shaders(), trusted);
        test(&context);
    }
}

#[gpu_test]
fn both_are_in_lockstep_with_the_cpu(_: &Context) {
    in_each_mode(|context| {
        for seed in sample_seeds(12, "trusted", 12) {
            let found = lockstep::random_run(context, seed, &mut lockstep::Codes::default());
            found.unwrap_or_else(|error| panic!("trusted {}: {error}", context.trusted_shaders()));
        }
    });
}

/// In both modes, a body for subgroups of 32 lanes is refused on a device with other subgroups, where its results would be wrong.
#[gpu_test]
fn a_body_that_does_not_fit_is_refused(context: &Context) {
    for trusted in [false, true] {
        let options = ContextOptions::default().trusted_shaders(trusted).rank(RankBody::Subgroup32);
        let made = Context::with_options(context.device(), context.queue(), &options);
        if context.caps().subgroup == Some((32, 32)) {
            assert!(made.is_ok());
        } else {
            let error = made.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("32 lanes") && error.contains("Portable"), "{error}");
        }
    }
}
