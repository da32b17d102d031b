//! The kind of device that the executor stands for, and how it runs.

use crate::{
    project::{Nothing, Project},
    run::{Options, Order},
};

/// A device to be made.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is known of the kernels.
    pub project: &'static dyn Project,
    /// How kernels run.
    pub options: Options,
    /// Whether the device has subgroup operations.
    pub subgroups: bool,
    /// Whether the device adds to floats atomically.
    pub float_atomics: bool,
    /// The most storage buffers of a stage.
    pub storage_buffers: u32,
    /// Whether it says that it is a card (`VirtualGpu`), not a driver that runs on a CPU.
    pub card: bool,
    /// Whether each dispatch runs a second time in another order, and the results are compared.
    pub twice: bool,
    /// The most dispatches of each text that are recorded of one workgroup, and the most of several, beside those whose barriers come in an order not met before; 0: none at all.
    pub record: usize,
    /// What a submission with findings does.
    pub findings: Findings,
    /// A mark that its compiler stumbles over: a pipeline of a text that has it is an internal error, as of a driver.
    pub stumbles: Option<&'static str>,
}

/// What a submission with findings does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// It panics, so that the test that submitted it fails.
    Fail,
    /// It prints them and goes on.
    Print,
    /// It only adds them to the report.
    Keep,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            project: &Nothing,
            options: Options::default(),
            subgroups: true,
            float_atomics: false,
            // That of WebGPU's default limits.
            storage_buffers: 8,
            card: false,
            twice: false,
            record: 0,
            findings: Findings::Fail,
            stumbles: None,
        }
    }
}

impl Config {
    /// This device with what `text` says, such as `subgroup=32,order=random,seed=7`: from a variable of the environment, say.
    ///
    /// # Errors
    ///
    /// What was wanted and what was found, of the first part that is not understood.
    pub fn with(mut self, text: &str) -> Result<Self, String> {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wanted = |what: &str| format!("wanted {what}, found {part}");
            let number = || value.parse::<u64>().map_err(|_| wanted(&format!("{name}=<number>")));
            let flag = || match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(wanted(&format!("{name}=on or {name}=off"))),
            };
            match name {
                "subgroup" => self.options.subgroup = number()? as u32,
                "order" => {
                    self.options.order = match value {
                        "ascending" => Order::Ascending,
                        "descending" => Order::Descending,
                        "random" => Order::Random,
                        _ => return Err(wanted("order=ascending, descending or random")),
                    }
                }
                "seed" => self.options.seed = number()?,
                "spurious" => self.options.spurious = number()? as u32,
                "budget" => self.options.budget = number()?,
                "subgroups" => self.subgroups = flag()?,
                "float-atomics" => self.float_atomics = flag()?,
                "twice" => self.twice = flag()?,
                "findings" => {
                    self.findings = match value {
                        "fail" => Findings::Fail,
                        "print" => Findings::Print,
                        _ => return Err(wanted("findings=fail or print")),
                    }
                }
                "counting" => self.options.counting = flag()?,
                _ => {
                    let names = "subgroup, order, seed, spurious, budget, subgroups, float-atomics, twice, counting or findings";
                    return Err(wanted(names));
                }
            }
        }
        Ok(self)
    }
}
