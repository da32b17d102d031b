//! The check of the text of a caller's own rule.

#[cfg(not(target_family = "wasm"))]
use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(not(target_family = "wasm"))]
use crate::wgsl::{Bodies, Kernel, OWN_RULE, RankBody, Sizes, compose};
use crate::{
    error::Error,
    rules::{OwnRule, Rule},
};

/// The stage that runs rules, for [`compose`].
#[cfg(not(target_family = "wasm"))]
const UPDATE: Kernel = Kernel { name: "update", workgroup: 256, bindings: &[] };

/// The functions of the stage that a rule may call.
#[cfg(not(target_family = "wasm"))]
const CALLED: [&str; 4] = ["descend", "settled", "correction", "bits_of"];

/// The names in the stage's texts, of every variant: also those of built-in functions, which a rule's own function would hide.
#[cfg(not(target_family = "wasm"))]
fn names() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for rank in RankBody::ALL {
        for (width, item) in [(1, 1), (4, 1), (4, 4)] {
            let sizes = Sizes { width, item, windows: 3, pieces: 3, own_rule: 1, ..Sizes::ONE };
            let text = compose(&UPDATE, Bodies { rank, ..Bodies::PLAIN.sizes(sizes) });
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            all.extend(words.filter(|word| *word != "rule").map(str::to_owned));
        }
    }
    all
}

/// Checks the rule of a configuration: that it is there, and its text for both widths.
///
/// # Errors
/// [`Error::Rule`], with the line of the text.
pub(crate) fn check_rule(rule: &OwnRule) -> Result<&Arc<dyn Rule>, Error> {
    let Some(given) = rule.given() else {
        let wanted = "the rule itself, which no file holds: give it with GroupConfig::with_rule";
        return Err(rule.fault("rule", wanted, "its name alone".into()));
    };
    #[cfg(not(target_family = "wasm"))]
    {
        let names = names();
        [4, 1].into_iter().try_for_each(|width| check_text(rule, given.wgsl(), width, &names))?;
    }
    Ok(given)
}

/// Checks the text of an own rule for one width, in the text of its stage. In a browser its compiler does when the pipeline is built.
#[cfg(not(target_family = "wasm"))]
fn check_text(rule: &OwnRule, own: &str, width: u32, names: &BTreeSet<String>) -> Result<(), Error> {
    use wgpu::naga::{Expression, Statement, front::wgsl::parse_str, valid};

    let sizes = Sizes { width, own_rule: 1, ..Sizes::ONE };
    let around = compose(&UPDATE, Bodies::PLAIN.sizes(sizes));
    let before = around.find(OWN_RULE).unwrap_or_default();
    let text = around.replace(OWN_RULE, own);
    let line = |at: usize| {
        let lines = |text: &str| text.matches('\n').count();
        let own_line = lines(&text[..at.min(text.len())]).saturating_sub(lines(&around[..before])) + 1;
        format!("line {}", own_line.min(own.lines().count().max(1)))
    };
    let quads = if width == 4 { "with Quad as vec4<f32>" } else { "with Quad as f32" };
    let wanted = format!("WGSL with fn rule(e: Element, n: Numbers) -> Element, {quads}");
    let words = |error: &dyn std::fmt::Display| error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let module = parse_str(&text).map_err(|error| {
        // One of the places may lie in the stage's own text, as of a name that it has, too.
        let at = error.labels().filter_map(|(span, _)| span.to_range()).map(|range| range.start);
        let at = at.min_by_key(|&at| if at < before { before - at } else { (at - before).saturating_sub(own.len()) });
        rule.fault(&line(at.unwrap_or(before)), &wanted, words(&error.message()))
    })?;
    let plain = parse_str(&around.replace(OWN_RULE, "fn rule(e: Element, n: Numbers) -> Element { return e; }"));
    let known = plain.map_err(|error| rule.fault("text", &wanted, error.message().into()))?;
    if module.global_variables.len() != known.global_variables.len()
        || module.entry_points.len() != known.entry_points.len()
        || !module.overrides.is_empty()
    {
        return Err(rule.fault(
            "text",
            "functions, constants and structs alone",
            "a variable of the module, an override or an entry point".into(),
        ));
    }
    let known_types: BTreeSet<_> = known.types.iter().filter_map(|(_, one)| one.name.clone()).collect();
    let functions = module.functions.iter().filter_map(|(_, function)| function.name.clone());
    let of_own = |name: &String| known.functions.iter().all(|(_, function)| function.name.as_ref() != Some(name));
    let constants = module.constants.iter().filter_map(|(_, constant)| constant.name.clone());
    let of_stage: BTreeSet<_> = known.constants.iter().filter_map(|(_, constant)| constant.name.clone()).collect();
    let types = module.types.iter().filter_map(|(_, one)| one.name.clone()).filter(|name| !known_types.contains(name));
    let own_names = functions.filter(of_own).chain(constants.filter(|name| !of_stage.contains(name))).chain(types);
    let is_numbered = |name: &str| {
        ["cache", "records"]
            .iter()
            .any(|of| name.strip_prefix(of).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())))
    };
    if let Some(name) = own_names.into_iter().find(|name| names.contains(name) || is_numbered(name)) {
        return Err(rule.fault("text", "names that the stage around it does not use", name));
    }
    let is_known = |name: &Option<String>| known.functions.iter().any(|(_, function)| function.name == *name);
    for (_, function) in module
        .functions
        .iter()
        .filter(|(_, function)| !is_known(&function.name) || function.name.as_deref() == Some("rule"))
    {
        for (handle, expression) in function.expressions.iter() {
            if matches!(expression, Expression::GlobalVariable(_) | Expression::Derivative { .. }) {
                let at = function.expressions.get_span(handle).to_range().map_or(before, |range| range.start);
                return Err(rule.fault(&line(at), "no binding and no derivative", "one".into()));
            }
        }
        let mut blocks = vec![&function.body];
        while let Some(block) = blocks.pop() {
            for (statement, span) in block.span_iter() {
                match statement {
                    Statement::Block(inner) => blocks.push(inner),
                    Statement::If { accept, reject, .. } => blocks.extend([accept, reject]),
                    Statement::Switch { cases, .. } => blocks.extend(cases.iter().map(|case| &case.body)),
                    Statement::Loop { body, continuing, .. } => blocks.extend([body, continuing]),
                    Statement::Call { function, .. }
                        if is_known(&module.functions[*function].name)
                            && !CALLED.iter().any(|name| module.functions[*function].name.as_deref() == Some(name)) =>
                    {
                        let name = module.functions[*function].name.clone().unwrap_or_default();
                        let at = span.to_range().map_or(before, |range| range.start);
                        let wanted = format!("calls of its own functions, {}", CALLED.join(", "));
                        return Err(rule.fault(&line(at), &wanted, name));
                    }
                    Statement::ControlBarrier(_)
                    | Statement::MemoryBarrier(_)
                    | Statement::Atomic { .. }
                    | Statement::WorkGroupUniformLoad { .. } => {
                        let at = span.to_range().map_or(before, |range| range.start);
                        return Err(rule.fault(&line(at), "no barrier and no atomic operation", "one".into()));
                    }
                    _ => {}
                }
            }
        }
    }
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), valid::Capabilities::empty());
    validator.validate(&module).map_err(|error| {
        let ranges = error.spans().filter_map(|(span, _)| span.to_range());
        let at = ranges.min_by_key(std::ops::Range::len).map_or(before, |range| range.start);
        let cause = std::error::Error::source(error.as_inner())
            .map_or_else(String::new, |cause| format!(": {}", words(&cause)));
        rule.fault(&line(at), &wanted, words(error.as_inner()) + &cause)
    })?;
    Ok(())
}
