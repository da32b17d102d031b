//! The distribution of the accesses over the rows of a table (Yang 2020, Figure 3).

use crate::task::{Batch, TableSpec};
use hotrow::scars::{Counting, Profile, Ranked};
use hotrow_cli::plot::{Chart, Series};

/// The most accesses that are counted.
const COUNTED: u64 = 1 << 25;

/// The most lines of the chart; the largest tables have them.
const LINES: usize = 16;

/// A chart of the use of each table's rows in these batches, or in the first of them.
pub(crate) fn chart(task: &str, tables: &[TableSpec], batches: impl Iterator<Item = Batch>) -> anyhow::Result<Chart> {
    let mut profile = Profile::new(&tables.iter().map(|table| table.rows).collect::<Vec<_>>(), Counting::Exact);
    for batch in batches {
        (0..).zip(&batch.bags).try_for_each(|(table, bags)| profile.count(table, &bags.indices))?;
        if profile.accesses() > COUNTED {
            break;
        }
    }
    Ok(lines(task, tables, &profile))
}

/// A line for each table in use, largest first. Beyond eight lines colours repeat and lines are dashed.
fn lines(task: &str, tables: &[TableSpec], profile: &Profile) -> Chart {
    let mut chart = Chart::new("Rows, most used first, % of the table", "Accesses that they take, %");
    chart.title = format!("{task}: how unevenly rows are used");
    let mut ranked: Vec<(&TableSpec, Ranked)> =
        (0..).zip(tables).map(|(at, table)| (table, profile.ranked_of(at))).collect();
    ranked.retain(|(_, ranked)| ranked.accesses() > 0);
    ranked.sort_by_key(|(table, _)| std::cmp::Reverse(table.rows));
    for (colour, (table, ranked)) in ranked.into_iter().take(LINES).enumerate() {
        let label = format!("{} ({} rows)", table.name, table.rows);
        let (points, dashed) = (curve(&ranked), colour >= 8);
        chart.series.push(Series { label, points, colour, dashed, markers: false, spread: Vec::new() });
    }
    chart.log_x = true;
    chart.y_range = Some((0.0, 100.0));
    chart
}

/// (percent of the rows, percent of the accesses to them), most used rows first: about 200 points at most, dense at the left end.
fn curve(ranked: &Ranked) -> Vec<(f64, f64)> {
    let (all, used) = (ranked.rows() as f64, ranked.used().len());
    let (mut rows, mut points) = (1, Vec::new());
    while rows < used {
        points.push((100.0 * rows as f64 / all, 100.0 * ranked.share_of(rows)));
        rows = (rows + 1).max((rows as f64 * 1.08).ceil() as usize);
    }
    points.push((100.0 * used as f64 / all, 100.0));
    if (used as f64) < all {
        points.push((100.0, 100.0));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::{Init, Pooling};

    fn table(name: &str, rows: u32) -> TableSpec {
        let (pooling, init) = (Pooling::Sum, Init::Constant(0.0));
        TableSpec { name: name.to_owned(), rows, dim: 4, pooling, init, stream: 0 }
    }

    fn counted(rows: u32, indices: &[u32]) -> Profile {
        let mut profile = Profile::new(&[rows, 8], Counting::Exact);
        profile.count(0, indices).unwrap();
        profile
    }

    #[test]
    fn the_curve_ends_at_everything() {
        let ranked = counted(8, &[3, 3, 3, 3, 1, 1, 5, 5]).ranked_of(0);
        assert_eq!(curve(&ranked), [(12.5, 50.0), (25.0, 75.0), (37.5, 100.0), (100.0, 100.0)]);
        let many: Vec<u32> = (0..100_000).flat_map(|row| vec![row; 1 + 1000 / (row as usize + 1)]).collect();
        let curve = curve(&counted(100_000, &many).ranked_of(0));
        assert!(curve.len() < 250 && curve.last() == Some(&(100.0, 100.0)), "{}", curve.len());
        assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
    }

    #[test]
    fn tables_without_accesses_are_not_drawn() {
        let tables = [table("made up", 8), table("none", 8)];
        let chart = lines("made up", &tables, &counted(8, &[1]));
        assert_eq!(chart.series.len(), 1);
        assert_eq!(chart.series[0].label, "made up (8 rows)");
    }
}
