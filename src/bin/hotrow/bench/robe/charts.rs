//! Two pictures: P4's Figure 3 as heat maps, and time against |M| with the crossover in it.

use std::path::{Path, PathBuf};

use super::measure::{Cell, Way};
use super::published::{Axes, TABLES};
use super::report::{Report, axes};
use super::shape::{CHUNK, COMPRESSION, COMPRESSIONS};
use crate::plot::{Chart, Heat, Panel, Series};

/// Writes what there are figures for; returns the files.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if report.cells.iter().all(|cell| cell.backwards().is_none()) {
        return Ok(Vec::new());
    }
    let stem = |what| folder.join(format!("robe-{}-{what}", report.backend));
    let mut written = heat(report).write(&stem("heat"))?.to_vec();
    written.extend(crossover(report).write(&stem("crossover"))?);
    Ok(written)
}

/// Figure 3 (a) to (f).
fn heat(report: &Report) -> Heat {
    let panels = TABLES.iter().filter_map(|table| {
        let letter = table.panel?;
        let (lines, columns) = axes(&report.shape, table.axes);
        let (pass, label) = (
            report.heading(table).split(':').next().unwrap_or_default().to_owned(),
            match table.axes {
                Axes::RowsCompression => format!("compression, chunks of {CHUNK}"),
                _ => format!("chunk, {COMPRESSION}x"),
            },
        );
        let values = report.values(table);
        let values = values.iter().map(|line| line.iter().map(|value| value.map(|s| 1e3 * s)).collect()).collect();
        Some(Panel { title: format!("({letter}) {pass}"), label, columns, lines, values })
    });
    Heat {
        title: format!("P4 Figure 3, rows down, batch {}: {}", report.shape.batch, report.title()),
        label: "milliseconds".to_owned(),
        panels: panels.collect(),
    }
}

/// Time against |M|, chunks of 32.
fn crossover(report: &Report) -> Chart {
    let mut chart = Chart::new("|M|, weights of the shared array", "Milliseconds");
    chart.title = format!("Dense, sparse and atomic, chunks of {CHUNK}: {}", report.title());
    (chart.log_x, chart.log_y) = (true, true);
    let line = |of: &dyn Fn(&Cell) -> Option<f64>| -> Vec<(f64, f64)> {
        let cells = report
            .cells
            .iter()
            .filter(|cell| cell.setting.chunk == CHUNK && COMPRESSIONS.contains(&cell.setting.compression));
        cells.filter_map(|cell| Some((cell.setting.weights as f64, 1e3 * of(cell)?))).collect()
    };
    let backward = |way| line(&|cell| Some(cell.step(way)?.backward.lowest));
    let backwards = Way::ALL.map(|way| (format!("backward, {}", way.name()), backward(way)));
    let forward = ("forward".to_owned(), line(&|cell| Some(cell.dense.as_ref()?.forward.median)));
    for (colour, (label, points)) in std::iter::once(forward).chain(backwards).enumerate() {
        chart.series.push(Series { label, points, colour, dashed: false, markers: true, spread: Vec::new() });
    }
    chart
}
