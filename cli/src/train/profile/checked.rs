//! A proposal against what a grid measured.

use super::super::claims::{Standing, find, stand};
use super::super::setting::Setting;
use super::super::summary::{self, Cell};
use super::{Profile, Proposal, Record};

/// What the grid's runs say to each setting that is proposed for a large table, and which cell they would choose themselves.
pub(crate) fn check(profile: &Profile, records: &[Record]) -> Vec<String> {
    let cells = summary::cells(records);
    let mut asked: Vec<Setting> = Vec::new();
    let mut said = Vec::new();
    for proposal in profile.proposals.iter().filter(|proposal| !proposal.predicted.is_empty()) {
        if proposal.setting == Setting::FP32 {
            // The grid measures everything against it.
            continue;
        }
        if !asked.contains(&proposal.setting) {
            asked.push(proposal.setting);
            said.push(about(proposal, &cells));
        }
    }
    let mut neutral: Vec<(f64, &Cell)> = cells
        .iter()
        .filter(|cell| cell.loss_change.is_some_and(|change| stand(&change).is_no_worse()))
        .filter_map(|cell| Some((cell.memory_paper?, cell)))
        .collect();
    neutral.sort_by(|a, b| a.0.total_cmp(&b.0));
    said.push(match neutral.first().and_then(|&(memory, cell)| Some((memory, cell, cell.loss_change?))) {
        Some((memory, cell, change)) => format!(
            "the grid's smallest cell that is no worse than FP32: {}, {memory:.4} of its memory, {}",
            cell.setting.label(),
            change.show(" %")
        ),
        None => "no cell of the grid is no worse than FP32".to_owned(),
    });
    said
}

fn about(proposal: &Proposal, cells: &[Cell]) -> String {
    let setting = proposal.setting;
    let label = setting.label();
    let Some((cell, change)) = find(cells, setting.plain()).and_then(|cell| Some((cell, cell.loss_change?))) else {
        return format!("{label}: the grid has no run of it");
    };
    let verdict = match stand(&change) {
        Standing::NoWorse(_) => "no worse than FP32",
        Standing::Worse => "worse than FP32",
        Standing::Unclear(why) => why,
    };
    let predicted = proposal.predicted.iter().find(|at| at.cache_percent == setting.cache_percent);
    let rates = match predicted.zip(cell.hit_rate) {
        Some((at, measured)) => {
            format!("; hit rate {:.1} %, predicted {:.1} %", 100.0 * measured, 100.0 * at.hit_rate_of(setting.policy))
        }
        None => String::new(),
    };
    format!("{label}: the grid measured {}, {verdict}{rates}", change.show(" %"))
}
