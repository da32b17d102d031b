//! An update rule of one's own, for the GPU and for the CPU: `RMSProp` whose root has a floor.
#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use std::sync::Arc;

use hotrow::{
    Bags, CpuGroup, Embedding, Error, Group, GroupConfig, Mode, Optimizer, Precision, adapter,
    rules::{self, Element, Numbers, Rule, State},
};

/// `v += (1 - decay) * (g * g - v); w -= lr * g / max(sqrt(v), floor)`
struct RmsProp;

impl Rule for RmsProp {
    fn name(&self) -> &str {
        "rmsprop"
    }

    fn states(&self) -> Vec<State> {
        vec![State::Moment]
    }

    fn hyperparameters(&self) -> Vec<(&str, f32)> {
        vec![("decay", 0.9), ("floor", 0.01)]
    }

    fn wgsl(&self) -> &str {
        "fn rule(e: Element, n: Numbers) -> Element {
            let v = e.first + (1.0 - n.hyper.x) * (e.g * e.g - e.first);
            return Element(e.g, descend(e.w, n.lr * e.g / max(sqrt(v), Quad(n.hyper.y))), v, e.second);
        }"
    }

    fn step(&self, e: Element, n: &Numbers) -> Element {
        let [decay, floor, ..] = n.hyper;
        let v = e.states[0] + (1.0 - decay) * (e.g * e.g - e.states[0]);
        Element { w: n.descend(e.w, n.lr * e.g / v.sqrt().max(floor)), states: [v, 0.0], ..e }
    }
}

/// Brings a row to [1, 2, 3, 4].
fn train(name: &str, group: &mut dyn Embedding) -> Result<(), Error> {
    for _ in 0..200 {
        let row = group.forward(Bags::new(&[7], &[0, 1]), Mode::Train)?;
        let gradient: Vec<f32> = row.iter().zip([1.0, 2.0, 3.0, 4.0]).map(|(w, wanted)| w - wanted).collect();
        group.backward(&gradient)?;
    }
    println!("{name}: {:.2?}", group.read_rows(&[7])?);
    Ok(())
}

fn main() -> Result<(), Error> {
    let rule: Arc<dyn Rule> = Arc::new(RmsProp);
    let config = GroupConfig::new(&[1000], 4)
        .with_precision(Precision::Fp16)
        .with_optimizer(Optimizer::sgd(0.05))
        .with_rule(rule.clone());
    train("CPU", &mut CpuGroup::new(config.clone())?)?;
    let context = adapter::open_best()?;
    train("GPU", &mut Group::new(&context, config)?)?;
    match rules::check(&context, &rule)?.first() {
        Some(most) => println!("GPU and CPU differ by up to {} ULP: {most:?}", most.ulp),
        None => println!("GPU and CPU give the same bits"),
    }
    Ok(())
}
