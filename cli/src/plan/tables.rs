//! The accesses of each table of a trace, over its rows (Yang 2020, Figure 3).

use hotrow_plan::{Error, scars::Skew};
use hotrow_report::object::Object;
use hotrow_report::plot::{Chart, Series, Style};

/// The most lines of a chart; those of the tables with most accesses are drawn.
const DRAWN: usize = 8;

/// The distribution of each table's accesses over the rows that it uses, for an id and a table of each access.
pub(super) fn by_table(ids: &[u32], tables: &[u8]) -> Result<Vec<(u8, Skew)>, Error> {
    let mut all: Vec<(u8, u32)> = tables.iter().copied().zip(ids.iter().copied()).collect();
    all.sort_unstable();
    let of = |of: &[(u8, u32)]| {
        Ok((of[0].0, Skew::from_bins(of.chunk_by(|a, b| a == b).map(|same| (same.len() as u64, 1)))?))
    };
    all.chunk_by(|a, b| a.0 == b.0).map(of).collect()
}

/// The share of the accesses that the hottest `percent` of the rows have, at least one row.
fn share(skew: &Skew, percent: f64) -> f64 {
    skew.mass(((skew.rows() as f64 * percent / 100.0).round() as u64).max(1))
}

/// A line for each table.
pub(super) fn lines(tables: &[(u8, Skew)]) -> Vec<Object> {
    let line = |(table, skew): &(u8, Skew)| {
        let line = Object::default().with("table", *table).with("accesses", skew.accesses()).with("rows", skew.rows());
        let line = line.with("hottest_0.1_%_share", share(skew, 0.1)).with("hottest_1_%_share", share(skew, 1.0));
        line.with("hottest_10_%_share", share(skew, 10.0)).with("hottest_50_%_share", share(skew, 50.0))
    };
    tables.iter().map(line).collect()
}

/// The share of the accesses over the share of the rows, a line for each table.
pub(super) fn chart(name: &str, tables: &[(u8, Skew)]) -> Chart {
    let mut chart = Chart::new("Hottest rows (% of the table's rows in use)", "Accesses (%)");
    chart.title = format!("{name}: accesses over rows, by table");
    (chart.log_x, chart.y_range) = (true, Some((0.0, 100.0)));
    let mut drawn: Vec<&(u8, Skew)> = tables.iter().collect();
    drawn.sort_by_key(|(_, skew)| std::cmp::Reverse(skew.accesses()));
    for (colour, (table, skew)) in drawn.into_iter().take(DRAWN).enumerate() {
        let rows = skew.rows() as f64;
        let percents = (0..=60).map(|step| (1.0 / rows).powf(1.0 - f64::from(step) / 60.0) * 100.0);
        let points = percents.map(|percent| (percent, 100.0 * share(skew, percent), [0.0; 2])).collect();
        let style = Style { colour, ..Style::default() };
        chart.series.push(Series { label: format!("table {table}: {rows} rows"), points, style });
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_lie_over_the_rows_of_their_own_table() {
        // Table 3: row 9 six times, rows 1 and 2 once each; table 0: four rows once each.
        let ids = [9, 9, 9, 9, 9, 9, 1, 2, 10, 11, 12, 13];
        let tables = [3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0];
        let found = by_table(&ids, &tables).unwrap();
        let figures = |found: &[(u8, Skew)], name: &'static str| {
            lines(found).iter().map(|line| line.number(name)).collect::<Vec<_>>()
        };
        assert_eq!((figures(&found, "table"), figures(&found, "rows")), (vec![0.0, 3.0], vec![4.0, 3.0]));
        assert_eq!(figures(&found, "hottest_50_%_share"), [0.5, 7.0 / 8.0]);
        assert_eq!(figures(&found, "hottest_1_%_share"), [0.25, 0.75]);
        let drawn = chart("tiny", &found);
        assert_eq!(drawn.series[0].label, "table 3: 3 rows", "that of most accesses first");
        let (first, last) = (drawn.series[0].points[0], drawn.series[0].points[60]);
        assert!((first.0 - 100.0 / 3.0).abs() < 1e-9 && (first.1, last.1) == (75.0, 100.0), "{first:?}, {last:?}");
        assert!((last.0 - 100.0).abs() < 1e-9, "all rows");
        assert_ne!(figures(&by_table(&ids, &[3; 12]).unwrap(), "hottest_50_%_share"), [7.0 / 8.0], "counted together");
    }
}
