//! Rewrites old spellings of the command line. Modes of a subcommand were flags (`plan --memory`); now they are subcommands (`plan
//! memory`). They may follow options (`plan --seed 3 memory`).

use clap::Command;
use std::ffi::{OsStr, OsString};

/// A flag that chose a mode of a subcommand.
#[derive(Clone, Copy, Debug)]
struct OldFlag {
    command: &'static str,
    flag: &'static str,
    /// Whether the flag has a value, which becomes the mode's first argument.
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

/// Moves the mode directly behind the subcommand. `plan --dim 8 robe TABLE` becomes `plan robe --dim 8 TABLE`; the old `plan --dim 8 --robe
/// TABLE` becomes `plan robe TABLE --dim 8`. Every other line stays as it is.
///
/// `cli` is the whole command, which knows the options with a value and the modes.
pub(crate) fn rewrite(cli: &Command, line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.into_iter().collect();
    let Some(at) = first(&[cli], &line, 1) else { return line };
    let Some(command) = cli.find_subcommand(&line[at]).filter(|command| command.has_subcommands()) else { return line };
    let known: Vec<&Command> = [cli, command].into_iter().chain(command.get_subcommands()).collect();
    let rows = OLD_FLAGS.iter().filter(|row| row.command == command.get_name());
    let start = at + 1;
    let mode = first(&known, &line, start).filter(|&at| command.find_subcommand(&line[at]).is_some());
    let words = start..mode.unwrap_or(line.len());
    let options = words.take_while(|&at| line[at] != "--");
    let old = options.flat_map(|at| rows.clone().map(move |row| (at, row)));
    let found = old.filter_map(|(at, row)| Some((at, row.mode, value(row, &line[at])?))).next();
    let moved: Vec<OsString> = match (found, mode) {
        (Some((flag, mode, value)), _) => {
            line.remove(flag);
            let value = match value {
                Value::InTheWord(value) => Some(value),
                Value::NextWord => (flag < line.len()).then(|| line.remove(flag)),
                Value::None => None,
            };
            [OsString::from(mode)].into_iter().chain(value).collect()
        }
        (None, Some(mode)) => vec![line.remove(mode)],
        (None, None) => return line,
    };
    line.splice(start..start, moved);
    line
}

/// The place of an old flag's value.
enum Value {
    None,
    NextWord,
    InTheWord(OsString),
}

/// The place of the flag's value, if `word` is the flag.
fn value(row: &OldFlag, word: &OsStr) -> Option<Value> {
    let rest = word.to_str()?.strip_prefix(row.flag)?;
    match (row.takes_value, rest.strip_prefix('=')) {
        (true, Some(value)) => Some(Value::InTheWord(value.into())),
        (true, None) if rest.is_empty() => Some(Value::NextWord),
        (false, None) if rest.is_empty() => Some(Value::None),
        _ => None,
    }
}

/// The position of the first word from `at` on that is neither an option of the `known` commands nor its value.
fn first(known: &[&Command], line: &[OsString], mut at: usize) -> Option<usize> {
    loop {
        let word = line.get(at)?.to_str()?;
        if word == "--" || !word.starts_with('-') {
            return (word != "--").then_some(at);
        }
        let takes_value =
            |option: &clap::Arg| option.get_long() == word.strip_prefix("--") && option.get_action().takes_values();
        at += if known.iter().any(|command| command.get_arguments().any(takes_value)) { 2 } else { 1 };
    }
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
            let modes = modes.map(|mode| mode.arg(Arg::new("chunk").long("chunk")));
            cli = cli.subcommand(Command::new(name).arg(Arg::new("dim").long("dim")).subcommands(modes));
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
    fn a_mode_may_stand_behind_options() {
        for (line, wanted) in [
            ("hotrow bench --seed 3 suite --out x", "hotrow bench suite --seed 3 --out x"),
            ("hotrow plan --json=x --quiet memory --rows 10", "hotrow plan memory --json=x --quiet --rows 10"),
            ("hotrow plan --chunk 4 robe rows.npy", "hotrow plan robe --chunk 4 rows.npy"),
            ("hotrow --seed 3 train --json grid grid", "hotrow --seed 3 train grid --json grid"),
            ("hotrow train --help until", "hotrow train until --help"),
            ("hotrow plan --unknown memory", "hotrow plan memory --unknown"),
        ] {
            assert_eq!(rewritten(line), wanted);
        }
        // Options of all subcommands, of the command and its modes, and of one mode.
        let cli = crate::Cli::command();
        for (line, wanted) in [
            ("hotrow bench --backend gpu suite", "hotrow bench suite --backend gpu"),
            ("hotrow plan --json x.json memory --rows 5", "hotrow plan memory --json x.json --rows 5"),
            #[cfg(feature = "train")]
            ("hotrow train --seeds 2 grid --out x", "hotrow train grid --seeds 2 --out x"),
            #[cfg(feature = "train")]
            ("hotrow train --cells full grid", "hotrow train grid --cells full"),
        ] {
            let line = rewrite(&cli, line.split(' ').map(OsString::from));
            assert!(crate::Cli::command().try_get_matches_from(&line).is_ok(), "{line:?}");
            assert_eq!(line.join(OsStr::new(" ")), wanted);
        }
    }

    #[test]
    fn an_option_takes_a_value_in_every_mode_or_in_none() {
        let cli = crate::Cli::command();
        for command in cli.get_subcommands().filter(|command| command.has_subcommands()) {
            let all = || [&cli, command].into_iter().chain(command.get_subcommands()).flat_map(Command::get_arguments);
            for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
                let alike = a.get_action().takes_values() == b.get_action().takes_values();
                assert!(a.get_long().is_none() || a.get_long() != b.get_long() || alike, "{a:?} {b:?}");
            }
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
            "hotrow plan -- memory",
            "hotrow plan --dim memory",
            "hotrow plan rows memory",
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
        // clap refuses these lines.
        assert_eq!(rewritten("hotrow plan --robe"), "hotrow plan robe");
        assert_eq!(rewritten("hotrow plan --memory --robe t"), "hotrow plan memory --robe t");
    }
}
