//! The fields of a line of a table.

/// The most characters of a bad field that a message quotes.
const QUOTED: usize = 40;

/// The start of a field, for a message.
pub(super) fn quote(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(QUOTED).collect()
}

/// The fields of a line, without blanks around them. One in quotes may hold the separator, and quotes that are doubled; both stay as they are.
pub(super) struct Fields<'l> {
    rest: Option<&'l [u8]>,
    separator: Option<u8>,
}

impl<'l> Fields<'l> {
    /// Without a separator, runs of blanks separate.
    pub(super) fn new(line: &'l [u8], separator: Option<u8>) -> Self {
        let rest = if separator.is_none() { line.trim_ascii() } else { line };
        Self { rest: Some(rest), separator }
    }

    fn quoted(&mut self, inner: &'l [u8]) -> Result<&'l [u8], &'static str> {
        let mut at = 0;
        loop {
            at += inner[at..].iter().position(|&byte| byte == b'"').ok_or("a quote that does not end there")?;
            if inner.get(at + 1) != Some(&b'"') {
                break;
            }
            at += 2;
        }
        let behind = trim(&inner[at + 1..]);
        self.rest = match behind.split_first() {
            None => None,
            Some((&byte, rest)) if Some(byte) == self.separator => Some(rest.strip_prefix(b":").unwrap_or(rest)),
            Some(_) if self.separator.is_none() && behind.len() < inner.len() - at - 1 => Some(behind),
            Some(_) => return Err("text behind a quote"),
        };
        Ok(&inner[..at])
    }
}

/// Without blanks at either end; a tab may separate.
fn trim(mut field: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = field {
        field = rest;
    }
    field
}

impl<'l> Iterator for Fields<'l> {
    type Item = Result<&'l [u8], &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let start = if rest.first() == Some(&b' ') { trim(rest) } else { rest };
        if let Some(inner) = start.strip_prefix(b"\"") {
            return Some(self.quoted(inner));
        }
        let end = match self.separator {
            None => rest.iter().position(u8::is_ascii_whitespace),
            Some(b':') => rest.windows(2).position(|pair| pair == b"::"),
            Some(by) => rest.iter().position(|&byte| byte == by),
        };
        let Some(end) = end else { return Some(Ok(trim(rest))) };
        self.rest = Some(
            self.separator.map_or(rest[end..].trim_ascii_start(), |by| &rest[end + 1 + usize::from(by == b':')..]),
        );
        Some(Ok(trim(&rest[..end])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_blanks_and_empty_fields() {
        for (line, separator, wanted) in [
            ("1,2", Some(b','), &["1", "2"][..]),
            (",, 3 ,", Some(b','), &["", "", "3", ""]),
            ("", Some(b','), &[""]),
            ("\t\t", Some(b'\t'), &["", "", ""]),
            (r#"1::"2"::a:b::"#, Some(b':'), &["1", "2", "a:b", ""]),
            (r#""a,b" , "c""d","""#, Some(b','), &["a,b", r#"c""d"#, ""]),
            (r#"1,"""#, Some(b','), &["1", ""]),
            ("  7  8\t9 ", None, &["7", "8", "9"]),
            (r#""7 8" 9"#, None, &["7 8", "9"]),
        ] {
            let found = Fields::new(line.as_bytes(), separator).map_while(Result::ok).collect::<Vec<_>>();
            assert_eq!(found, wanted.iter().map(|field| field.as_bytes()).collect::<Vec<_>>(), "{line}");
        }
        for (line, fault) in [(r#"1,"2"#, "a quote that does not end there"), (r#""1"2,3"#, "text behind a quote")] {
            assert_eq!(Fields::new(line.as_bytes(), Some(b',')).find_map(Result::err), Some(fault), "{line}");
        }
    }
}
