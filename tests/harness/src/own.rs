//! Rules of the tests' own, and what they must do on both backends.

use std::sync::Arc;

use hotrow::{
    Bags, Embedding, Error, GroupConfig, Init, Mode, Optimizer, Precision,
    internals::correction,
    rules::{Element, Numbers, Rule, State},
};

/// A rule by its parts.
#[derive(Clone)]
pub struct Written {
    pub name: &'static str,
    pub states: Vec<State>,
    pub hyper: Vec<(&'static str, f32)>,
    pub wgsl: &'static str,
    pub step: fn(Element, &Numbers) -> Element,
    /// Whether the step of all rows fails.
    pub fails: bool,
}

impl Rule for Written {
    fn name(&self) -> &str {
        self.name
    }

    fn states(&self) -> Vec<State> {
        self.states.clone()
    }

    fn hyperparameters(&self) -> Vec<(&str, f32)> {
        self.hyper.clone()
    }

    fn wgsl(&self) -> &str {
        self.wgsl
    }

    fn step(&self, element: Element, numbers: &Numbers) -> Element {
        (self.step)(element, numbers)
    }

    fn steps(&self, elements: &mut [Element], dim: usize, numbers: &Numbers) -> Result<(), String> {
        assert!(elements.len() >= dim && elements.len().is_multiple_of(dim), "{} elements", elements.len());
        elements.iter_mut().for_each(|element| *element = self.step(*element, numbers));
        if self.fails { Err("as it was told".into()) } else { Ok(()) }
    }
}

pub fn sgd() -> Written {
    Written {
        name: "my-sgd",
        states: vec![],
        hyper: vec![],
        wgsl: "fn rule(e: Element, n: Numbers) -> Element {\n    return Element(e.g, descend(e.w, n.lr * e.g), e.first, e.second);\n}",
        step: |e, n| Element { w: n.descend(e.w, n.lr * e.g), ..e },
        fails: false,
    }
}

pub fn adagrad() -> Written {
    Written {
        name: "my-adagrad",
        states: vec![State::Sum],
        hyper: vec![("eps", 1e-8)],
        wgsl: "fn root(x: Quad) -> Quad { return sqrt(x); }
            fn rule(e: Element, n: Numbers) -> Element {
                let sum = e.first + e.g * e.g;
                return Element(e.g, descend(e.w, n.lr * e.g / (root(sum) + n.hyper.x)), sum, e.second);
            }",
        step: |e, n| {
            let sum = e.states[0] + e.g * e.g;
            Element { w: n.descend(e.w, n.lr * e.g / (sum.sqrt() + n.hyper[0])), states: [sum, 0.0], ..e }
        },
        fails: false,
    }
}

fn adam() -> Written {
    Written {
        name: "my-adam",
        states: vec![State::SignedMoment, State::Moment],
        hyper: vec![("beta1", 0.9), ("beta2", 0.999), ("eps", 1e-8)],
        wgsl: "fn rule(e: Element, n: Numbers) -> Element {
                let m = e.first + (1.0 - n.hyper.x) * (e.g - e.first);
                let v = e.second + (1.0 - n.hyper.y) * (e.g * e.g - e.second);
                let fix = vec2<f32>(correction(n.hyper.x, n.t), correction(n.hyper.y, n.t));
                return Element(e.g, descend(e.w, n.lr * m / (fix.x * (sqrt(v / fix.y) + n.hyper.z))), m, v);
            }",
        step: |e, n| {
            let [beta1, beta2, eps, _] = n.hyper;
            let m = e.states[0] + (1.0 - beta1) * (e.g - e.states[0]);
            let v = e.states[1] + (1.0 - beta2) * (e.g * e.g - e.states[1]);
            let fix = [beta1, beta2].map(|beta| correction(beta, n.t));
            Element { w: n.descend(e.w, n.lr * m / (fix[0] * ((v / fix[1]).sqrt() + eps))), states: [m, v], ..e }
        },
        fails: false,
    }
}

/// Trains four steps, and returns everything that the group keeps. Rows 1 and 9 have gradients that are not finite in the third step.
fn trained<T: Embedding>(new: impl Fn(GroupConfig) -> T, config: GroupConfig) -> (hotrow::state::Snapshot, Vec<f32>) {
    let mut group = new(config);
    let offsets: Vec<u32> = (0..=40).map(|bag| 3 * bag).collect();
    for step in 0..4 {
        let indices: Vec<u32> = (0..120).map(|i| (i * i * 7 + step * 5) % 60).collect();
        let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        let mut grads: Vec<f32> =
            (0..outputs.len()).map(|i| ((i * 37 + step as usize) % 23) as f32 / 8.0 - 1.3).collect();
        if step == 2 {
            grads[0] = f32::INFINITY;
        }
        group.backward(&grads).unwrap();
    }
    let rows: Vec<u32> = (0..60).collect();
    (group.snapshot().unwrap(), group.read_rows(&rows).unwrap())
}

/// The library's SGD, AdaGrad and Adam, written as own rules, give the library's bits.
pub fn own_rules_have_the_bits_of_the_library<T: Embedding>(new: impl Fn(GroupConfig) -> T) {
    let rules = [(Optimizer::sgd(0.1), sgd()), (Optimizer::adagrad(0.1), adagrad()), (Optimizer::adam(0.1), adam())];
    let mut skipped = 0;
    for (k, precision) in Precision::ALL.into_iter().enumerate() {
        for (j, (optimizer, rule)) in rules.clone().into_iter().enumerate() {
            for cache_rows in [0, 32, 60] {
                let mut optimizer = optimizer.with_weight_decay([0.0, 0.01][(k + j) % 2]).with_decoupled(k % 2 == 0);
                (optimizer.clip_value, optimizer.clip_norm) = ((j == 1).then_some(2.0), (k == 3).then_some(3.0));
                let config = GroupConfig::new(&[60], [6, 8][(j + k) % 2])
                    .with_precision(precision)
                    .with_optimizer(optimizer)
                    .with_cache_rows(cache_rows)
                    .with_init(Init::Uniform { low: -1.0, high: 1.0 });
                let (wanted, rows) = trained(&new, config.clone());
                let own = config.clone().with_rule(Arc::new(rule.clone()));
                let found = trained(&new, own);
                assert!(found == (wanted.clone(), rows), "{precision}, {}, {cache_rows} cached rows", rule.name);
                skipped += wanted.counters[0].skipped_rows;
                let mut other = rule.clone();
                other.hyper.iter_mut().for_each(|(_, value)| *value = 0.5);
                assert!(other.hyper.is_empty() || trained(&new, config.with_rule(Arc::new(other))) != found);
            }
        }
    }
    assert!(skipped > 0);
}

/// A rule that is wrong is refused by name, when the group is made.
pub fn wrong_rules_are_named<T>(new: impl Fn(GroupConfig) -> Result<T, Error>) {
    const RULE: &str = "fn rule(e: Element, n: Numbers) -> Element { return e; }";
    let with = |change: &dyn Fn(&mut Written)| {
        let mut rule = sgd();
        change(&mut rule);
        new(GroupConfig::new(&[10], 4).with_rule(Arc::new(rule))).map(drop)
    };
    with(&|rule| rule.wgsl = RULE).unwrap();
    for (text, wanted_place, wanted) in [
        ("fn other(e: Element) -> Element { return e; }", "line 1", "rule"),
        ("", "line 1", "rule"),
        ("fn rule(e: Element, n: Numbers) -> Element {\n    let x = 1;\n    return f;\n}", "line 3", "f"),
        ("fn rule(e: Element, n: Numbers) -> Element {\n    return e.g;\n}", "line 2", ""),
        (
            "fn rule(e: Element, n: Numbers) -> Element {\n    return Element(vec4<f32>(e.g), e.w, e.first, e.second);\n}",
            "line 2",
            "",
        ),
        (
            "fn rule(e: Element, n: Numbers) -> Element {\n    workgroupBarrier();\n    return e;\n}",
            "line 2",
            "barrier",
        ),
        (
            "fn rule(e: Element, n: Numbers) -> Element {\n    let d = params.dim;\n    return e;\n}",
            "line 2",
            "binding",
        ),
        ("fn rule(e: Element, n: Numbers) -> Element {\n    let d = dpdx(n.lr);\n    return e;\n}", "line 2", ""),
        (
            "fn merged(x: Quad) -> Quad { return x; }\nfn rule(e: Element, n: Numbers) -> Element { return e; }",
            "line 1",
            "merged",
        ),
        ("var<private> x: f32;\nfn rule(e: Element, n: Numbers) -> Element { return e; }", "text", "variable"),
        (
            "@compute @workgroup_size(1) fn other() {}\nfn rule(e: Element, n: Numbers) -> Element { return e; }",
            "text",
            "entry point",
        ),
        (
            "fn rule(e: Element, n: Numbers) -> Element {\n    store_quad(0u, 0u, e.w);\n    return e;\n}",
            "line 2",
            "store_quad",
        ),
        (
            "fn sqrt(x: f32) -> f32 { return 0.0; }\nfn rule(e: Element, n: Numbers) -> Element { return e; }",
            "text",
            "sqrt",
        ),
        ("const records1 = 1u;\nfn rule(e: Element, n: Numbers) -> Element { return e; }", "text", "records1"),
        ("struct Record { x: u32 }\nfn rule(e: Element, n: Numbers) -> Element { return e; }", "", "Record"),
    ] {
        match with(&|rule| rule.wgsl = text) {
            Err(Error::Rule { rule, place, wanted: all, found }) => {
                assert_eq!(rule, "my-sgd");
                assert!(wanted_place.is_empty() || place == wanted_place, "{text}: {place}: {found}");
                assert!(format!("{all} {found}").contains(wanted), "{text}: wanted {all}, found {found}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    for (change, wanted) in [
        ((&|rule: &mut Written| rule.name = "a rule") as &dyn Fn(&mut Written), "name"),
        (&|rule| rule.name = "", "name"),
        (&|rule| rule.states = vec![State::Sum; 3], "states"),
        (&|rule| rule.hyper = vec![("a", 0.0); 5], "hyperparameters"),
        (&|rule| rule.hyper = vec![("a", f32::NAN)], "hyperparameters"),
        (&|rule| rule.hyper = vec![("", 1.0)], "hyperparameters"),
    ] {
        match with(change) {
            Err(Error::Rule { place, .. }) => assert_eq!(place, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    let mut bare = GroupConfig::new(&[10], 4);
    bare.optimizer.kind = hotrow::OptimizerKind::Own;
    crate::refuses!(new(bare), Error::Config { field: "optimizer", .. });
}
