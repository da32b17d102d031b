//! Two bars for each setting: how many times as many rows a second as FP32, in the update and in the whole backward.

use std::path::Path;

use kuva::{
    backend::svg::SvgBackend,
    plot::BarPlot,
    render::{layout::Layout, plots::Plot, render::render_multiple},
};

use super::Report;

/// Okabe and Ito's colours.
const COLOURS: [&str; 2] = ["#0072b2", "#e69f00"];

/// Writes STEM.svg and STEM.png.
pub(super) fn write(report: &Report, stem: &Path) {
    let mut bars = BarPlot::new().with_horizontal(true);
    // From below upwards.
    for line in report.lines.iter().rev() {
        let figures = [line.update, Some(line.backward)].into_iter().zip(COLOURS);
        let values = figures.filter_map(|(figure, colour)| Some((figure?.relative_to_fp32, colour)));
        bars = bars.with_group(line.setting.name, values.collect::<Vec<_>>());
    }
    let update = report.lines.iter().any(|line| line.update.is_some());
    let legend = if update { vec!["update kernel", "whole backward"] } else { vec!["whole backward"] };
    let plots = vec![Plot::Bar(bars.with_legend(legend))];
    let layout = Layout::auto_from_plots(&plots)
        .with_width(900.0)
        .with_height(620.0)
        .with_title(report.title())
        .with_title_wrap(80)
        .with_title_size(17)
        .with_label_size(15)
        .with_tick_size(13)
        .with_x_label("Rows a second, times FP32");
    let scene = render_multiple(plots, layout);
    let with = |ending: &str| stem.with_extension(ending);
    std::fs::write(with("svg"), SvgBackend::new().render_scene(&scene)).unwrap();
    std::fs::write(with("png"), kuva::RasterBackend::new().with_scale(2.0).render_scene(&scene).unwrap()).unwrap();
}
