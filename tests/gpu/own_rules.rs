//! Rules of the caller's own on a device: the library's rules written as own ones, a rule against its step on the CPU, and wrong rules.

use std::sync::Arc;

use hotrow::{Context, Group, rules};
use hotrow_harness::{gpu_test, own};

#[gpu_test]
fn own_rules_have_the_bits_of_the_library(context: &Context) {
    own::own_rules_have_the_bits_of_the_library(|config| Group::new(context, config).unwrap());
}

#[gpu_test]
fn wrong_own_rules_are_named(context: &Context) {
    own::wrong_rules_are_named(|config| Group::new(context, config));
}

/// A rule whose steps agree has no difference worth a word; one whose steps do not is told, with the element.
#[gpu_test]
fn a_rule_is_checked_against_its_step(context: &Context) {
    let rule: Arc<dyn rules::Rule> = Arc::new(own::sgd());
    let few = rules::check(context, &rule).unwrap();
    assert!(few.iter().all(|difference| difference.ulp < 1 << 12), "{:?}", few.first());
    let other: Arc<dyn rules::Rule> = Arc::new(own::Written {
        step: |e, n| rules::Element { w: n.descend(e.w, n.lr * e.g * 1.01), ..e },
        ..own::sgd()
    });
    let found = rules::check(context, &other).unwrap();
    assert!(found.len() > 1000 && found[0].ulp > 1 << 12 && found[0].number == 0, "{:?}", found.first());
    let difference = &found[0];
    let exact = difference.before.w - 0.1 * difference.before.g;
    assert!((difference.gpu - exact).abs() < (difference.cpu - exact).abs(), "{difference:?}");
}
