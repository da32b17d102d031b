//! Files of text: bags of ids, one a line, separated by blanks or commas; tables (CSV), one access a line in one column; click logs of
//! Criteo. The name and the first lines tell which.

use super::criteo;
use super::error::{FORMATS, TraceError};
use super::ids::{Id, Ids, Trace};
use super::lines::{Fields, Lines, is_comment, quote};
use super::packed::{self, Input};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of a file's beginning by which its kind is known.
const START: u64 = 1 << 16;

/// The longest line of a table; without a limit a file without line ends would fill the memory.
const LONGEST: u64 = 1 << 20;

/// How many lines are read before the command asks for a column.
const ASKED: u64 = 1 << 16;

/// Characters that may separate columns, tried in this order.
const SEPARATORS: [u8; 4] = *b"\t;|,";

/// How a text is read that is no click log.
#[derive(Default)]
struct Table {
    /// Lines are bags.
    bags: bool,
    separator: Option<u8>,
    at: usize,
    header: bool,
    /// Lines may have other lengths.
    ragged: bool,
    /// What asks for the column, unless one of so many lines has another length: no column mends that.
    asks: Option<(TraceError, u64)>,
}

/// Reads a file, whose `column` holds the ids; numbering them may take `most` bytes.
pub(super) fn read(path: &Path, column: Option<&str>, most: u64) -> Result<Trace, TraceError> {
    let mut start = Input::open(path)?.start(START)?;
    if let Some((found, remedy)) = crate::foreign::format(&start) {
        return Err(TraceError::of(path, FORMATS, found, remedy));
    }
    if let Some(at) = start.iter().position(|&byte| byte == 0) {
        return Err(TraceError::binary(path, format_args!("at byte {at}")));
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        start.drain(..3);
    }
    let cr = start.iter().position(|&byte| byte == b'\r');
    if !start.contains(&b'\n') && cr.is_some_and(|at| at + 1 < start.len()) {
        let remedy = r"convert them, such as with tr '\r' '\n'";
        return Err(TraceError::of(path, "lines that end in LF or CR LF", "CR alone, as old Macs write", remedy));
    }
    // The last line may be cut.
    let is_long = start.len() as u64 + 3 >= START;
    if is_long && let Some(end) = start.iter().rposition(|&byte| byte == b'\n') {
        start.truncate(end);
    }
    let lines = start.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<&[u8]> = lines.filter(|line| !is_blank(line)).collect();
    let comments = lines.iter().take_while(|line| is_comment(line, false)).count();
    if comments > 0 && lines.len() == comments {
        let found = format!("# before each line of {}", if is_long { "64 KiB" } else { "the file" });
        let remedy = "write ids without # at the beginning, behind at most 64 KiB of comments";
        return Err(TraceError::of(path, "a line that is no comment", found, remedy));
    }
    let lines = &lines[comments..];
    let is_log = |first: &&[u8]| criteo::is(first, packed::bare(path).to_lowercase().ends_with(".tsv"));
    let mut trace = if column.is_none() && lines.first().is_some_and(is_log) {
        criteo::read(path, most)
    } else {
        let table = table(path, lines, column)?;
        if table.bags { bags(path, table.separator, table.header, most) } else { one_column(path, table, most) }
    }?;
    if comments > 0 {
        let found = format!("comments, {comments} lines with # at its beginning, are left out");
        trace.notes.push(format!("{}: {found}", path.display()));
    }
    Ok(trace)
}

/// Which ids are numbered.
const MANY: &str = "text or numbers of more than 32 bits";

/// The ids of a table's column.
fn one_column(path: &Path, table: Table, most: u64) -> Result<Trace, TraceError> {
    let Table { bags: _, separator, at, header, ragged, asks } = table;
    let last = asks.as_ref().map_or(u64::MAX, |asks| asks.1);
    let mut ids = Ids::new(path, most, false);
    let mut lines = Lines::open(path, LONGEST)?;
    let (mut heading, mut doubtful, mut texts) = (header, None, false);
    // For each length of a line: how many have it, and the first.
    let mut lengths = BTreeMap::new();
    while let Some(line) = lines.next()?.filter(|line| line.number <= last) {
        if is_blank(line.bytes) {
            continue;
        }
        let (mut found, mut id) = (0, &b""[..]);
        for field in Fields::new(line.bytes, separator) {
            let field = field.map_err(|fault| {
                line.fail("fields whose quotes end on their line", fault, "repair or remove the line")
            })?;
            if found == at {
                id = field;
            }
            found += 1;
        }
        lengths.entry(found).or_insert((0_u64, line.number)).0 += 1;
        if std::mem::take(&mut heading) || found <= at || !ragged && lengths.len() > 1 {
            continue;
        }
        let (id, is_doubtful) = line.id(id)?.of_column();
        if let Id::Text(text) = id {
            texts |= !is_doubtful && !is_number(text);
            if is_doubtful && doubtful.is_none() {
                let found = format!("{:?}", quote(text));
                doubtful = Some(line.fail("whole numbers as ids", &found, "repair or remove the line"));
            }
        }
        line.push(&mut ids, id)?;
    }
    let usual = lengths.iter().max_by_key(|(_, (count, first))| (*count, Reverse(*first)));
    let odd = lengths.iter().filter(|one| Some(one.0) != usual.map(|usual| usual.0)).min_by_key(|one| one.1.1);
    if let (false, Some((usual, _)), Some((odd, (_, line)))) = (ragged, usual, odd) {
        let wanted = format!("{usual} column{}, as other lines have", if *usual == 1 { "" } else { "s" });
        return Err(TraceError::of(path, wanted, format!("{odd} in line {line}"), "repair or remove the line"));
    }
    // A doubtful id is one among texts.
    match asks.map(|asks| asks.0).or(doubtful.filter(|_| !texts)) {
        Some(error) => Err(error),
        _ if header && ids.ids.is_empty() => {
            let found = "a header and no line of ids";
            Err(TraceError::of(path, "at least one id", found, "get or write the file again"))
        }
        _ => {
            let mut trace = ids.found(MANY);
            let all: u64 = lengths.values().map(|one| one.0).sum();
            let missing = lengths.range(..=at).map(|(_, one)| *one).reduce(|a, b| (a.0 + b.0, a.1.min(b.1)));
            trace.notes.extend(missing.map(|(count, first)| {
                let without = format!("{count} of {all} lines have no column {} and are left out", at + 1);
                format!("{}: {without}; the first is line {first}", path.display())
            }));
            Ok(trace)
        }
    }
}

fn bags(path: &Path, separator: Option<u8>, header: bool, most: u64) -> Result<Trace, TraceError> {
    let (mut ids, mut offsets) = (Ids::new(path, most, false), vec![0]);
    let (mut least, mut longest, mut filled) = (usize::MAX, 0, 0_u64);
    // The words and the numbers at each place of a line.
    let mut kinds = [[0_u64; 2]; 64];
    let (mut heading, mut lines) = (header, Lines::open(path, u64::MAX)?);
    while let Some(line) = lines.next()? {
        if std::mem::take(&mut heading) {
            continue;
        }
        let before = ids.ids.len();
        let pieces = line.bytes.split(|byte| byte.is_ascii_whitespace() || *byte == b',');
        for (at, piece) in pieces.filter(|piece| !piece.is_empty()).enumerate() {
            let id = line.id(piece)?;
            line.push(&mut ids, id)?;
            let Some([words, numbers]) = kinds.get_mut(at) else { continue };
            match id.of_column() {
                (Id::Text(text), is_missing) if !(is_number(text) && text.iter().any(u8::is_ascii_digit)) => {
                    *words += u64::from(!is_missing);
                }
                _ => *numbers += 1,
            }
        }
        let length = ids.ids.len() - before;
        if length > 0 {
            (least, longest, filled) = (least.min(length), longest.max(length), filled + 1);
        }
        offsets.push(u32::try_from(ids.ids.len()).map_err(|_| TraceError::too_long(path))?);
    }
    // A column: at least eight fields, or half of few lines have one, and nineteen of twenty are of the kind.
    let place = |of: usize| {
        let is = |both: &[u64; 2]| both[of] >= (filled / 2).clamp(1, 8) && 20 * both[of] >= 19 * (both[0] + both[1]);
        kinds.iter().position(is).map(|at| at + 1)
    };
    if let (true, Some(words), Some(numbers)) = (least < longest, place(0), place(1)) {
        let asks = TraceError::Spec(format!(
            "--column: wanted it beside {}, whose lines have {least} to {longest} fields, words in column {words} and numbers in column {numbers}, \
             found none; give the number of the column of ids, from 1 on",
            path.display()
        ));
        let lines = if separator.is_some() || header { u64::MAX } else { 0 };
        return one_column(path, Table { separator, header, asks: Some((asks, lines)), ..Table::default() }, most);
    }
    let mut read = Trace { offsets: Some(offsets), ..ids.found(MANY) };
    if least == longest && least > 1 && read.ids.len() > least {
        read.notes.push(format!(
            "{}: every line is taken as a bag of {least} ids; if only one of its columns holds ids, name it with --column",
            path.display()
        ));
    }
    Ok(read)
}

/// Whether a line has nothing; tabs part empty fields.
fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|&byte| byte == b' ')
}

/// The fields of a line, as far as its quotes are right.
fn fields(line: &[u8], separator: Option<u8>) -> Vec<&[u8]> {
    Fields::new(line, separator).map_while(Result::ok).collect()
}

fn is_number(field: &[u8]) -> bool {
    std::str::from_utf8(field).is_ok_and(|field| field.parse::<f64>().is_ok())
}

fn is_name(field: &[u8]) -> bool {
    !is_number(field) && String::from_utf8_lossy(field).chars().any(char::is_alphabetic)
}

fn table(path: &Path, lines: &[&[u8]], column: Option<&str>) -> Result<Table, TraceError> {
    let Some(&first) = lines.first() else { return Ok(Table { bags: true, ..Table::default() }) };
    let name = packed::bare(path).to_lowercase();
    // The separator that cuts all lines into as many pieces, or else the first one there is.
    let count = |line: &[u8], by| Fields::new(line, by).count();
    let even = |by| lines.iter().take(20).all(|line| count(line, by) == count(first, by));
    // The first line may be the odd one, without a separator.
    let most = |by| lines.iter().take(20).filter(|line| count(line, Some(by)) > 1).count() > lines.len().min(20) / 2;
    let parts = |by| count(first, Some(by)) > 1 || count(first, None) == 1 && most(by);
    let present: Vec<u8> = SEPARATORS.into_iter().filter(|&by| parts(by)).collect();
    let separator = present.iter().find(|by| even(Some(**by))).or(present.first()).copied();
    let is_double = parts(b':') && (even(Some(b':')) || count(first, None) == 1 && most(b':'));
    let separator = separator.or(is_double.then_some(b':'));
    let is_named = [".csv", ".tsv"].iter().any(|ending| name.ends_with(ending));
    let is_table =
        column.is_some() || is_named || matches!(separator, Some(b';' | b'|' | b':')) || first.contains(&b'"');
    // Blanks part columns of numbers; words in one column may have them too.
    let is_parted = count(first, None) > 1
        && even(None)
        && lines.last().is_some_and(|line| fields(line, None).into_iter().all(is_number));
    let separator = separator.or((is_named && !is_parted).then_some(b','));
    let names = fields(first, separator);
    // A header is a text above numbers.
    let above = |at: usize| {
        let mut below = lines[1..].iter().map(|line| fields(line, separator)).filter_map(|line| line.get(at).copied());
        let below = below.by_ref().filter(|field| !field.is_empty()).take(20).collect::<Vec<_>>();
        is_name(names[at]) && !below.is_empty() && below.into_iter().all(is_number)
    };
    let mut header = (0..names.len()).any(above);
    if !(is_table || header && names.len() > 1) {
        return Ok(Table { bags: true, separator, header, ..Table::default() });
    }
    let mut listed = names.iter().take(40).map(|name| quote(name)).collect::<Vec<_>>().join(", ");
    listed += if names.len() > 40 { ", .." } else { "" };
    let (shown, columns) = (path.display(), names.len());
    let listed = format!("{shown} {} {listed}", if header { "has the columns" } else { "begins with" });
    let most = lines.iter().map(|line| count(line, separator)).max().unwrap_or(0);
    let at = match column {
        None if columns == 1 => Ok(0),
        None => Err(format!(
            "the column of ids beside a file of {columns} columns, found none; give its name, or its number from 1 on: {listed}"
        )),
        Some(column) => {
            let has = |at: &usize| names[*at] == column.as_bytes() && is_name(names[*at]);
            let named: Vec<usize> = (0..columns).filter(has).collect();
            header |= named.len() == 1;
            match (&named[..], column.parse::<usize>()) {
                (&[at], _) => Ok(at),
                ([], Ok(number)) if (1..=most).contains(&number) => Ok(number - 1),
                ([], _) => Err(format!("a column's name, or its number from 1 to {most}, found {column}: {listed}")),
                _ => {
                    let found = format!("{} columns of the name {column}", named.len());
                    Err(format!("one column of ids, found {found}; give its number from 1 on: {listed}"))
                }
            }
        }
    };
    let at = at.map_err(|wanted| TraceError::Spec(format!("--column: wanted {wanted}")));
    let is_free = separator.is_none() && !header;
    let (at, asks) = match at {
        Err(asks) if column.is_none() => (0, Some((asks, if is_free { 0 } else { ASKED }))),
        at => (at?, None),
    };
    Ok(Table { bags: false, separator, at, header, ragged: column.is_some() && is_free, asks })
}
