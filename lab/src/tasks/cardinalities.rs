//! The number of rows of each of the 26 tables.

use hotrow_report::trace::CRITEO_CATEGORIES as TABLES;
use serde::Deserialize;
use std::{fmt, str::FromStr, sync::LazyLock};

/// The 26 cardinalities of Criteo-Kaggle in the order of its fields; Yang 2020's Table 1 lists them by size.
static KAGGLE: LazyLock<[u32; TABLES]> = LazyLock::new(|| {
    let lines = include_str!("../../data/criteo-kaggle.csv").lines().skip(1);
    let mut rows = lines.filter_map(|line| line.split(',').nth(1)?.parse().ok());
    std::array::from_fn(|_| rows.next().unwrap_or_default())
});

/// Tables of at most this many rows are not scaled.
const KEPT: u32 = 10_000;

/// The default divisor of the numbers of rows, which keeps the model's memory small.
const SCALE: u32 = 100;

/// The rows of the 26 tables, and a description of the choice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Cardinalities {
    pub(crate) rows: [u32; TABLES],
    /// The description, for the user.
    from: String,
}

impl Cardinalities {
    fn scaled(by: u32) -> Self {
        let from = match by {
            1 => "Yang 2020's Table 1".to_owned(),
            _ => format!("Yang 2020's Table 1, those above {KEPT} rows by 1/{by} but not below {KEPT}"),
        };
        Self { rows: KAGGLE.map(|rows| if rows > KEPT { (rows / by).max(KEPT) } else { rows }), from }
    }

    /// Those of a log whose categories were numbered.
    pub(crate) fn found(rows: [u32; TABLES]) -> Self {
        let all: u64 = KAGGLE.iter().map(|&rows| u64::from(rows)).sum();
        Self { rows, from: format!("a row for each category found; Yang 2020's Table 1 has {all}") }
    }
}

/// Writes "26 tables of 421,303 rows: Yang 2020's Table 1, ...".
impl fmt::Display for Cardinalities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: u64 = self.rows.iter().map(|&rows| u64::from(rows)).sum();
        write!(f, "{TABLES} tables of {rows} rows: {}", self.from)
    }
}

impl Default for Cardinalities {
    fn default() -> Self {
        Self::scaled(SCALE)
    }
}

impl TryFrom<toml::Value> for Cardinalities {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.trim_matches(['[', ']']).parse()
    }
}

/// A cap for Yang 2020's Table 1 (`40000`), a scale for it (`1/100`), or 26 numbers of rows in the order of the fields.
impl FromStr for Cardinalities {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = |found: &str| {
            format!(
                "wanted a cap of at least 2 rows such as 40000, a scale such as 1/100, or {TABLES} numbers of at least 2 rows, \
                 comma separated; found {found}; a table needs a row for a missing category and one for the others"
            )
        };
        if let Some(by) = text.strip_prefix("1/") {
            return by.parse().ok().filter(|&by| by > 0).map(Self::scaled).ok_or_else(|| fail(&format!("{text:?}")));
        }
        let mut rows = Vec::new();
        for piece in text.split(',') {
            let number = piece.trim().parse().ok().filter(|&rows| rows >= 2);
            rows.push(number.ok_or_else(|| fail(&format!("{:?}", piece.trim())))?);
        }
        match (<[u32; TABLES]>::try_from(rows.as_slice()), rows.as_slice()) {
            (Ok(rows), _) => Ok(Self { rows, from: "as given".to_owned() }),
            (_, &[cap]) => Ok(Self {
                rows: KAGGLE.map(|rows| rows.min(cap)),
                from: format!("Yang 2020's Table 1, at most {cap} rows a table"),
            }),
            _ => Err(fail(&format!("{} numbers", rows.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_capped_and_listed() {
        let default = Cardinalities::default();
        assert_eq!(default.rows[..6], [1461, 584, 101_312, 22_026, 306, 24]);
        assert_eq!(default.rows[9], 10_000, "93,146 / 100 would be smaller than tables that are kept");
        assert_eq!("1/100".parse(), Ok(default));
        assert_eq!("1/1".parse::<Cardinalities>().unwrap().rows, *KAGGLE);
        assert_eq!("500".parse::<Cardinalities>().unwrap().rows[..6], [500, 500, 500, 500, 306, 24]);
        assert_eq!(["7"; TABLES].join(", ").parse::<Cardinalities>().unwrap().rows, [7; TABLES]);
    }
}
