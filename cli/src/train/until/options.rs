//! The options of `--until-full`.

#[derive(Debug, clap::Args)]
pub(crate) struct UntilArgs {
    /// Train each setting until it reaches the full FP32 table's loss, or for N times as many steps (P4): steps, time and bytes side by
    /// side. Rates are constant
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with_all = ["grid", "profile", "checkpoint_every", "resume", "seconds"]
    )]
    pub(in crate::train) until_full: Option<u32>,
    /// With --until-full: steps of the full table; the lowest test loss in them is the goal [default: those of
    /// --epochs, which is left out beside it]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), requires = "until_full")]
    pub(in crate::train) goal_steps: Option<u64>,
    /// With --until-full: steps from one test to the next [default: a fortieth of the full table's]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), requires = "until_full")]
    pub(super) test_every: Option<u64>,
    /// With --until-full: samples of each test, the first of the test set
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "until_full"
    )]
    pub(super) tested: u32,
    /// With --until-full: learning rates of the tables to choose from, for each setting by a run of half the full table's steps
    /// [default: a third of --lr, --lr, three times that; --lr is left out beside it]
    #[arg(long, value_name = "X[,X]", value_delimiter = ',', value_parser = super::super::options::rate, requires = "until_full")]
    pub(in crate::train) rates: Vec<f32>,
}
