//! Values that leave another option without a meaning: each is refused by name, before any data is read.

use super::cells::Lists;
use super::options::{CompareArgs, RunArgs, UntilArgs};
use super::tasks::TaskName;
use crate::failure::Failure;
use crate::names::{PrecisionName, value_name};
use crate::options::Options;

/// An option, whether it was given, its requirement, and the value found instead; none, if the requirement is met.
type Rule = (&'static str, bool, &'static str, Option<String>);

/// The options of a mode beside those of its runs.
pub(super) enum Beside<'a> {
    Compare(&'a CompareArgs),
    Until(&'a UntilArgs),
    /// Nothing that could be in conflict.
    Nothing,
}

/// Refuses the first option that would make no difference.
pub(super) fn check(options: &Options, run: &RunArgs, beside: &Beside<'_>) -> Result<(), Failure> {
    let (args, task) = (&run.task, run.task.name(options));
    let unless = |wanted: TaskName| (task != wanted).then(|| value_name(&task));
    let mut rules: Vec<Rule> = vec![
        ("--sentences", args.sentences, "--task author", unless(TaskName::Author)),
        ("--criteo", args.criteo.is_some(), "--task dlrm", unless(TaskName::Dlrm)),
        ("--cardinalities", args.cardinalities.is_some(), "--task dlrm", unless(TaskName::Dlrm)),
    ];
    match beside {
        Beside::Compare(args) => {
            rules.extend(of_lists(&args.lists));
            rules.extend(of_compare(args));
        }
        Beside::Until(args) => {
            rules.extend(of_lists(&args.lists));
            let compared = !args.table.is_empty() || args.lists.any();
            rules.push((
                "until",
                !compared,
                "settings to compare with the full table (--table robe:compression=100, say)",
                Some("none".into()),
            ));
            let decay = run.decay == Some(true);
            rules.push(("--decay", decay, "constant rates", decay.then(|| "true".into())));
        }
        Beside::Nothing => {}
    }
    match rules.into_iter().find(|(_, given, _, found)| *given && found.is_some()) {
        Some((option, _, wanted, Some(found))) => Err(Failure::Usage(format!(
            "{option}: wanted {wanted} beside it, found {found}; give that, or leave {option} out"
        ))),
        _ => Ok(()),
    }
}

fn of_lists(lists: &Lists) -> [Rule; 3] {
    let cached = lists.cache_percent.iter().any(|&percent| percent > 0.0);
    let precision = &lists.precision;
    let rounds = precision.is_empty() || precision.iter().any(|&one| one != PrecisionName::Fp32);
    let no_cache = (!cached).then(|| "no cache".to_owned());
    let exact = (!rounds).then(|| "fp32 alone".to_owned());
    [
        ("--rounding", !lists.rounding.is_empty(), "a --precision below fp32", exact),
        ("--policy", !lists.policy.is_empty(), "a --cache-percent above 0", no_cache.clone()),
        ("--ways", !lists.ways.is_empty(), "a --cache-percent above 0", no_cache),
    ]
}

fn of_compare(args: &CompareArgs) -> [Rule; 6] {
    let several = args.batch.len() > 1;
    let sizes = || several.then(|| args.batch.len().to_string());
    let none = |there: bool| (!there).then(|| "none".to_owned());
    let place = args.out.is_some() || args.resume.is_some();
    let use_of_out = several || args.checkpoint_every.is_some();
    [
        ("--seconds", args.seconds.is_some(), "several --batch sizes", (!several).then(|| "one".to_owned())),
        ("--table", !args.table.is_empty(), "one --batch size", sizes()),
        ("--checkpoint-every", args.checkpoint_every.is_some(), "one --batch size", sizes()),
        ("--resume", args.resume.is_some(), "one --batch size", sizes()),
        ("--checkpoint-every", args.checkpoint_every.is_some(), "--out DIR", none(place)),
        ("--out", args.out.is_some(), "--checkpoint-every or several --batch sizes", none(use_of_out)),
    ]
}
