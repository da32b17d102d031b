//! An update rule of the caller's own, whose step on the CPU is a function of Python's over numpy's arrays.

use std::{cell::Cell, sync::Arc};

use hotrow::rules::{Element, Numbers, Rule, State};
use numpy::{PyArrayDyn, PyArrayMethods as _};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use crate::{
    arrays::{Floats, new_array},
    errors::refused,
};

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Whether a step runs on this thread.
pub(crate) fn runs() -> bool {
    RUNS.get()
}

/// The native part of hotrow.Rule.
#[pyclass(frozen, module = "hotrow._native")]
pub(crate) struct OwnRule(Arc<Given>);

struct Given {
    name: String,
    states: Vec<State>,
    hyper: Vec<(String, f32)>,
    wgsl: String,
    step: Py<PyAny>,
    first: Option<Py<PyAny>>,
}

impl OwnRule {
    pub(crate) fn rule(&self) -> Arc<dyn Rule> {
        self.0.clone()
    }
}

#[pymethods]
impl OwnRule {
    #[new]
    fn new(
        name: String,
        states: Vec<String>,
        hyper: Vec<(String, f32)>,
        wgsl: String,
        step: Bound<'_, PyAny>,
        first: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        const STATES: [(&str, State); 4] = [
            ("sum", State::Sum),
            ("signed sum", State::SignedSum),
            ("moment", State::Moment),
            ("signed moment", State::SignedMoment),
        ];
        let of = |name: String| {
            let found = STATES.iter().find(|(known, _)| *known == name).map(|(_, state)| *state);
            let wanted = STATES.map(|(known, _)| known).join(", ");
            found.ok_or_else(|| refused("rule, states", &wanted, name, "correct it"))
        };
        let states = states.into_iter().map(of).collect::<PyResult<_>>()?;
        for (what, function) in [("rule, step", Some(&step)), ("rule, first", first.as_ref())] {
            if let Some(other) = function.filter(|function| !function.is_callable()) {
                return Err(refused(what, "a function", other.get_type(), "pass one"));
            }
        }
        if let Some((name, _)) = hyper.iter().find(|(name, _)| ["lr", "decay", "t"].contains(&&**name)) {
            return Err(refused(
                "rule, hyper",
                "names other than lr, decay and t, which each step has",
                name,
                "rename it",
            ));
        }
        let (step, first) = (step.unbind(), first.map(Bound::unbind));
        Ok(Self(Arc::new(Given { name, states, hyper, wgsl, step, first })))
    }
}

/// A new array of this shape.
fn made<'py>(
    py: Python<'py>,
    shape: [usize; 2],
    values: impl Iterator<Item = f32>,
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let array = new_array::<f32>(py, shape, "float32")?;
    array.readwrite().as_slice_mut()?.iter_mut().zip(values).for_each(|(to, value)| *to = value);
    Ok(array)
}

/// The arrays of shape (rows, dim) that a function has returned: one, or as many in a tuple.
fn returned<'py>(
    what: &str,
    found: Bound<'py, PyAny>,
    count: usize,
    [rows, dim]: [usize; 2],
) -> PyResult<Vec<Floats<'py>>> {
    let all: Vec<Bound<'py, PyAny>> = match found.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![found],
    };
    if all.len() != count {
        return Err(refused(
            what,
            &format!("{count} arrays"),
            format!("{} of them", all.len()),
            "return w, then each state",
        ));
    }
    let checked = |one: &Bound<'py, PyAny>| {
        let floats = Floats::new(what, one, Some(dim as u32))?;
        if floats.shape() != [rows, dim] {
            let found = format!("shape {:?}", floats.shape());
            return Err(refused(what, &format!("shape ({rows}, {dim})"), found, "return arrays of the shape of w"));
        }
        Ok(floats)
    };
    all.iter().map(checked).collect()
}

impl Given {
    fn all_steps(&self, py: Python<'_>, elements: &mut [Element], dim: usize, numbers: &Numbers) -> PyResult<()> {
        let shape = [elements.len() / dim, dim];
        let each = self.states.len();
        let given = PyDict::new(py);
        for (name, value) in [("lr", numbers.lr), ("decay", numbers.shrink)] {
            given.set_item(name, value)?;
        }
        given.set_item("t", numbers.t)?;
        for ((name, _), value) in self.hyper.iter().zip(numbers.hyper) {
            given.set_item(name, value)?;
        }
        let numbers = py.import("types")?.getattr("SimpleNamespace")?.call((), Some(&given))?;
        let mut arguments = vec![numbers];
        arguments.push(made(py, shape, elements.iter().map(|element| element.g))?.into_any());
        arguments.push(made(py, shape, elements.iter().map(|element| element.w))?.into_any());
        for k in 0..each {
            arguments.push(made(py, shape, elements.iter().map(|element| element.states[k]))?.into_any());
        }
        let found = self.step.bind(py).call1(PyTuple::new(py, arguments)?)?;
        for (k, floats) in returned("rule, step", found, 1 + each, shape)?.iter().enumerate() {
            for (element, &value) in elements.iter_mut().zip(floats.slice()?) {
                *if k == 0 { &mut element.w } else { &mut element.states[k - 1] } = value;
            }
        }
        Ok(())
    }

    fn first_states(&self, py: Python<'_>, weights: &[f32], states: [&mut [f32]; 2]) -> PyResult<()> {
        let Some(first) = &self.first else { return Ok(()) };
        let shape = [1, weights.len()];
        let found = first.bind(py).call1((made(py, shape, weights.iter().copied())?,))?;
        for (floats, state) in returned("rule, first", found, self.states.len(), shape)?.iter().zip(states) {
            state.copy_from_slice(floats.slice()?);
        }
        Ok(())
    }
}

impl Rule for Given {
    fn name(&self) -> &str {
        &self.name
    }

    fn states(&self) -> Vec<State> {
        self.states.clone()
    }

    fn hyperparameters(&self) -> Vec<(&str, f32)> {
        self.hyper.iter().map(|(name, value)| (&**name, *value)).collect()
    }

    fn first(&self, weights: &[f32], states: [&mut [f32]; 2]) -> Result<(), String> {
        Python::attach(|py| self.first_states(py, weights, states)).map_err(|error| error.to_string())
    }

    fn wgsl(&self) -> &str {
        &self.wgsl
    }

    /// The library calls [`steps`](Rule::steps) alone.
    fn step(&self, element: Element, numbers: &Numbers) -> Element {
        let mut one = [element];
        let failed = Element { g: f32::NAN, ..element };
        if self.steps(&mut one, 1, numbers).is_ok() { one[0] } else { failed }
    }

    fn steps(&self, elements: &mut [Element], dim: usize, numbers: &Numbers) -> Result<(), String> {
        let before = RUNS.replace(true);
        let done = Python::attach(|py| self.all_steps(py, elements, dim, numbers)).map_err(|error| error.to_string());
        RUNS.set(before);
        done
    }
}
