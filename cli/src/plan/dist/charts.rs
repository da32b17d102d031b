//! Charts over the number of ranks, a line for each source of accesses.

use crate::object::Object;
use crate::output::with_ending;
use crate::plot::{Chart, Series};
use std::path::{Path, PathBuf};

const KIB: f64 = 1024.0;

/// Endings of the charts' stems.
const ENDINGS: [&str; 3] = ["", "-imbalance", "-exchange"];

/// The stems of the charts.
pub(super) fn stems(stem: &Path) -> [PathBuf; 3] {
    ENDINGS.map(|ending| with_ending(stem, ending))
}

/// Writes bytes a rank, imbalance, and share of the time in exchange.
pub(super) fn write(answers: &[Object], stem: &Path) -> anyhow::Result<()> {
    let [bytes, imbalance, exchange] = stems(stem);
    let setting = answers.first().map_or_else(String::new, |one| {
        let (group, batch) = (one.object("group"), one.number("batch"));
        format!("dim {} in {}, batches of {batch} bags", group.number("dim"), group.text("precision"))
    });
    let mut chart = chart(answers, "Sent by a rank in a step (KiB)", |one| one.number("rank sent_bytes") / KIB);
    chart.title = format!("Bytes that a rank sends in a step: {setting}");
    chart.log_y = true;
    chart.write(&bytes)?;
    let mut chart = self::chart(answers, "Busiest rank over mean rank", |one| one.number("imbalance bytes_ratio"));
    chart.title = format!("Imbalance of the bytes sent and received: {setting}");
    let most = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(1.0, f64::max);
    chart.y_range = Some((1.0, 1.05 * most.max(1.1)));
    chart.write(&imbalance)?;
    let share = |one: &Object| 100.0 * one.number("time exchange_share");
    let mut chart = self::chart(answers, "Time in exchange (%)", share);
    let time = answers.first().map(|one| one.object("time")).unwrap_or_default();
    chart.title = format!(
        "Share of a step's time in exchange: {setting}; {} µs a message, {} Gbit/s, own work {} GB/s",
        time.number("alpha_us"),
        time.number("beta_gbit"),
        time.number("gamma_gb")
    );
    chart.y_range = Some((0.0, 100.0));
    chart.write(&exchange)?;
    Ok(())
}

/// A chart of one value. A single rank exchanges nothing and is left out.
fn chart(answers: &[Object], label: &str, value: impl Fn(&Object) -> f64) -> Chart {
    let mut chart = Chart::new("Ranks", label);
    chart.log_x = true;
    let ranks = |one: &Object| one.number("ranks");
    let shown = || answers.iter().filter(|one| ranks(one) > 1.0);
    let ends = shown().map(ranks).fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
    chart.x_range = (ends.1 > 0.0).then_some((0.8 * ends.0, 1.25 * ends.1));
    let mut names: Vec<(&str, bool)> = Vec::new();
    for one in shown() {
        let name = (one.text("source name"), one.text("source kind") == "trace");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for (colour, (name, counted)) in names.into_iter().enumerate() {
        let is = |one: &&Object| one.text("source name") == name && (one.text("source kind") == "trace") == counted;
        let mut points: Vec<(f64, f64)> = shown().filter(is).map(|one| (ranks(one), value(one))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let label = format!("{name}, {}", if counted { "counted" } else { "expected" });
        chart.series.push(Series { label, points, colour, dashed: !counted, markers: true, spread: Vec::new() });
    }
    chart
}
