//! Two pictures: P4's Figure 3 as heat maps with updates below, and time against |M| with the crossovers in it.

use std::path::{Path, PathBuf};

use super::measure::{Cell, Way, What};
use super::published::{Axes, TABLES};
use super::report::{Report, axes};
use super::shape::{CHUNK, COMPRESSION, COMPRESSIONS};
use crate::plot::{Chart, Heat, Panel, Series};

/// Writes what there are figures for; returns the files.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if report.cells.iter().all(|cell| cell.both(What::Update).is_none()) {
        return Ok(Vec::new());
    }
    let stem = |what| folder.join(format!("robe-{}-{what}", report.backend));
    let mut written = heat(report).write(&stem("heat"))?.to_vec();
    written.extend(crossover(report).write(&stem("crossover"))?);
    Ok(written)
}

/// Figure 3 (a) to (f), whose backward is the gradient; below them updates, in the shape of (b).
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
        let values = milliseconds(&report.values(table));
        Some(Panel { title: format!("({letter}) {pass}"), label, columns, lines, values })
    });
    let updates = [Way::DenseUpdate, Way::SparseUpdate, Way::AtomicUpdate].map(|way| {
        let (lines, columns) = axes(&report.shape, Axes::RowsCompression);
        let values = milliseconds(&report.updates(Axes::RowsCompression, way));
        Panel { title: way.name().to_owned(), label: format!("compression, chunks of {CHUNK}"), columns, lines, values }
    });
    Heat {
        title: format!("P4 Figure 3 and, below, updates; rows down, batch {}: {}", report.shape.batch, report.title()),
        label: "milliseconds".to_owned(),
        panels: panels.chain(updates).collect(),
    }
}

fn milliseconds(seconds: &[Vec<Option<f64>>]) -> Vec<Vec<Option<f64>>> {
    seconds.iter().map(|line| line.iter().map(|value| value.map(|seconds| 1e3 * seconds)).collect()).collect()
}

/// Time against |M|, chunks of 32.
fn crossover(report: &Report) -> Chart {
    let mut chart = Chart::new("|M|, weights of the shared array", "Milliseconds");
    chart.title = format!("Updates and gradients, chunks of {CHUNK}: {}", report.title());
    (chart.log_x, chart.log_y) = (true, true);
    let line = |of: &dyn Fn(&Cell) -> Option<f64>| -> Vec<(f64, f64)> {
        let cells = report
            .cells
            .iter()
            .filter(|cell| cell.setting.chunk == CHUNK && COMPRESSIONS.contains(&cell.setting.compression));
        cells.filter_map(|cell| Some((cell.setting.weights as f64, 1e3 * of(cell)?))).collect()
    };
    let mut add = |label: &str, colour, dashed, points| {
        let label = label.to_owned();
        chart.series.push(Series { label, points, colour, dashed, markers: true, spread: Vec::new() });
    };
    add("forward", 0, false, line(&|cell| Some(cell.step(Way::DenseUpdate)?.forward.median)));
    for way in Way::ALL {
        let (colour, dashed) = match way {
            Way::DenseUpdate => (1, false),
            Way::SparseUpdate => (2, false),
            Way::AtomicUpdate => (3, false),
            Way::DenseGradient => (1, true),
            Way::SparseGradient => (2, true),
        };
        add(way.name(), colour, dashed, line(&|cell| Some(cell.step(way)?.backward.lowest)));
    }
    chart
}
