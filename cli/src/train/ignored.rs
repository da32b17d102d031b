//! Options beside others that leave them without a meaning: each is refused by name, before any data is read.

use super::options::Args;
use super::tasks::TaskName;
use crate::failure::Failure;
use crate::names::{PrecisionName, option_name};

/// What is asked for and would make no difference.
pub(crate) fn check(args: &Args, name: TaskName) -> Result<(), Failure> {
    if args.sentences && name != TaskName::Author {
        let name = option_name(&name);
        return Err(Failure::Usage(format!(
            "--sentences: wanted --task author beside it, found {name}; leave it out, or take that task"
        )));
    }
    let until = &args.until;
    for (option, given, other, instead, what) in [
        ("--lr", args.lr.is_some(), "--rates", !until.rates.is_empty(), "the rates are tried as they are"),
        (
            "--epochs",
            args.epochs.is_some(),
            "--goal-steps",
            until.goal_steps.is_some(),
            "the full table takes so many steps",
        ),
    ] {
        if given && instead {
            return Err(Failure::Usage(format!(
                "{option}: wanted no {other} beside it, since {what}, found both; leave one out"
            )));
        }
    }
    let lists = args.lists();
    let given = [
        ("--precision", lists.precisions.is_some()),
        ("--rounding", lists.roundings.is_some()),
        ("--policy", lists.policies.is_some()),
        ("--cache-percent", lists.percents.is_some()),
        ("--ways", lists.ways.is_some()),
    ];
    if args.grid.profile {
        return match given.into_iter().find(|&(_, given)| given) {
            Some((option, _)) => Err(Failure::Usage(format!(
                "{option}: wanted no --profile beside it, which chooses the settings itself, found both; leave one out"
            ))),
            None => Ok(()),
        };
    }
    // A grid's lists narrow cells that are there without them.
    if args.grid.grid {
        return Ok(());
    }
    let cached = lists.percents.is_some_and(|percents| percents.iter().any(|&percent| percent > 0.0));
    let rounds = lists.precisions.is_none_or(|all| all.iter().any(|&one| one != PrecisionName::Fp32));
    for (option, wanted, found) in [
        ("--rounding", "a --precision below fp32", (!rounds).then_some("fp32 alone")),
        ("--policy", "a --cache-percent above 0", (!cached).then_some("no cache")),
        ("--ways", "a --cache-percent above 0", (!cached).then_some("no cache")),
    ] {
        if let Some(found) = found.filter(|_| given.contains(&(option, true))) {
            return Err(Failure::Usage(format!(
                "{option}: wanted {wanted} beside it, found {found}; give one, or leave it out"
            )));
        }
    }
    Ok(())
}
