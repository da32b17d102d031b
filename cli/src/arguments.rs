//! Old spellings of the command line. Modes of a subcommand were flags (`plan --memory`); now they are subcommands (`plan memory`).

use clap::Command;
use std::ffi::{OsStr, OsString};

/// A flag that chose a mode of a subcommand.
#[derive(Clone, Copy, Debug)]
struct OldFlag {
    command: &'static str,
    flag: &'static str,
    /// The flag has a value, which is the mode's first argument.
    takes_value: bool,
    mode: &'static str,
}

const fn old(command: &'static str, flag: &'static str, takes_value: bool, mode: &'static str) -> OldFlag {
    OldFlag { command, flag, takes_value, mode }
}

/// Every flag that has become a subcommand.
const OLD_FLAGS: [OldFlag; 7] = [
    old("bench", "--suite", false, "suite"),
    old("bench", "--robe", false, "robe"),
    old("plan", "--memory", false, "memory"),
    old("plan", "--robe", true, "robe"),
    old("train", "--grid", false, "grid"),
    old("train", "--profile", false, "profile"),
    old("train", "--until-full", true, "until"),
];

/// Rewrites `plan --dim 8 --robe TABLE` to `plan robe TABLE --dim 8`, and so on for the first of the [`OLD_FLAGS`], wherever it stands after
/// its subcommand. Every other line stays as it is.
///
/// `cli` is the whole command: it says which options have a value, and which modes there are.
pub(crate) fn rewrite(cli: &Command, line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.into_iter().collect();
    let Some(at) = subcommand(cli, &line) else { return line };
    let Some(command) = line[at].to_str().and_then(|name| cli.find_subcommand(name)) else { return line };
    let is_mode = |name: &OsStr| command.get_subcommands().any(|mode| name == mode.get_name());
    let (start, end) = (at + 1, line.iter().position(|word| word == "--").unwrap_or(line.len()));
    if line.get(start).is_some_and(|word| is_mode(word)) {
        return line;
    }
    let rows = || OLD_FLAGS.iter().filter(|row| row.command == command.get_name() && is_mode(row.mode.as_ref()));
    let found = (start..end).find_map(|at| rows().find_map(|row| Some((at, row, value(row, &line[at])?))));
    let Some((flag, row, value)) = found else { return line };
    line.remove(flag);
    let mut mode = vec![OsString::from(row.mode)];
    match value {
        Value::InTheWord(value) => mode.push(value),
        Value::NextWord if flag < line.len() => mode.push(line.remove(flag)),
        Value::NextWord | Value::None => {}
    }
    line.splice(start..start, mode);
    line
}

/// Where the value of an old flag is.
enum Value {
    None,
    NextWord,
    InTheWord(OsString),
}

/// Where the flag's value is, if `word` is the flag.
fn value(row: &OldFlag, word: &OsStr) -> Option<Value> {
    let rest = word.to_str()?.strip_prefix(row.flag)?;
    match (row.takes_value, rest.strip_prefix('=')) {
        (true, Some(value)) => Some(Value::InTheWord(value.into())),
        (true, None) if rest.is_empty() => Some(Value::NextWord),
        (false, None) if rest.is_empty() => Some(Value::None),
        _ => None,
    }
}

/// The place of the subcommand's name: the first word that is neither an option nor the value of one.
fn subcommand(cli: &Command, line: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = line.get(at) {
        let word = word.to_str()?;
        let Some(option) = word.strip_prefix("--") else { return (!word.starts_with('-')).then_some(at) };
        let has_value =
            cli.get_arguments().any(|own| own.get_long() == Some(option) && own.get_action().takes_values());
        at += if has_value { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction, CommandFactory as _};

    /// A command with the modes of all rows, and options before the subcommand.
    fn cli() -> Command {
        let mut cli = Command::new("hotrow").arg(Arg::new("json").long("json")).arg(Arg::new("seed").long("seed"));
        cli = cli.arg(Arg::new("quiet").long("quiet").action(ArgAction::SetTrue));
        for name in ["bench", "plan", "train"] {
            let modes = OLD_FLAGS.iter().filter(|row| row.command == name).map(|row| Command::new(row.mode));
            cli = cli.subcommand(Command::new(name).subcommands(modes));
        }
        cli.subcommand(Command::new("info"))
    }

    fn rewritten(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        rewrite(&cli(), words).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn every_old_flag_becomes_a_subcommand() {
        for (old, new) in [
            ("hotrow bench --suite", "hotrow bench suite"),
            ("hotrow bench --out x --robe --seconds 5", "hotrow bench robe --out x --seconds 5"),
            ("hotrow plan --rows 10 --memory", "hotrow plan memory --rows 10"),
            ("hotrow plan --robe rows.npy --dim 8", "hotrow plan robe rows.npy --dim 8"),
            ("hotrow plan --dim 8 --robe=rows.npy", "hotrow plan robe rows.npy --dim 8"),
            ("hotrow plan --robe=normal:rows=5,dim=2", "hotrow plan robe normal:rows=5,dim=2"),
            ("hotrow train --seeds 2 --grid --out x", "hotrow train grid --seeds 2 --out x"),
            ("hotrow train --profile", "hotrow train profile"),
            ("hotrow train --seeds 2 --until-full 3", "hotrow train until 3 --seeds 2"),
            ("hotrow train --until-full=3 --seeds 2", "hotrow train until 3 --seeds 2"),
        ] {
            assert_eq!(rewritten(old), new);
        }
    }

    #[test]
    fn every_mode_is_one_of_the_command() {
        let cli = crate::Cli::command();
        for row in OLD_FLAGS {
            let command = cli.find_subcommand(row.command).unwrap();
            let mode = command.find_subcommand(row.mode).unwrap_or_else(|| panic!("{row:?}"));
            assert_eq!(mode.get_positionals().count(), usize::from(row.takes_value), "{row:?}");
            assert!(!command.get_arguments().any(|own| own.get_long() == Some(&row.flag[2..])), "{row:?}");
        }
    }

    #[test]
    fn options_may_stand_before_the_subcommand() {
        for (old, new) in [
            ("hotrow --json plan plan --memory", "hotrow --json plan plan memory"),
            ("hotrow --json=x --quiet --seed 3 plan --memory", "hotrow --json=x --quiet --seed 3 plan memory"),
        ] {
            assert_eq!(rewritten(old), new);
        }
    }

    #[test]
    fn every_other_line_stays() {
        for line in [
            "hotrow",
            "hotrow --help",
            "hotrow -V",
            "hotrow info --memory",
            "hotrow plan",
            "hotrow plan memory --memory",
            "hotrow plan robe rows.npy --robe other.npy",
            "hotrow plan --memory=yes",
            "hotrow plan --memorys",
            "hotrow plan -- --memory",
            "hotrow bench --robe=x",
            "hotrow train --until 3",
            "hotrow --seed",
        ] {
            assert_eq!(rewritten(line), line);
        }
        // clap refuses what is left.
        assert_eq!(rewritten("hotrow plan --robe"), "hotrow plan robe");
        assert_eq!(rewritten("hotrow plan --memory --robe t"), "hotrow plan memory --robe t");
    }
}
