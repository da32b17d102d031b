//! A device: the stage `update` by the group's timeline, and the whole backward.

use std::time::Duration;

use hotrow::{Context, Group};
use hotrow_cli::lab::{Inputs, Lab, Rounds};

use super::{Backward, Bench, Rows, Setting, Size, gradients};

pub(super) struct Device {
    lab: Lab,
    group: Group,
    inputs: Inputs,
}

impl Device {
    pub(super) fn new(context: &Context, setting: &Setting, size: Size, rows: &Rows) -> Self {
        let lab = Lab::new(context, Rounds { whole: 1, detailed: 0, slice: Duration::ZERO });
        let batch = (rows.indices.clone(), (0..=size.updates).collect());
        let mut inputs = Inputs::new(&lab, &[batch], size.dim, 0.0);
        let grads = gradients(size.updates as usize * size.dim as usize);
        inputs.grads = lab.storage(bytemuck::cast_slice(&grads));
        Self { group: Group::new(&lab.timed, setting.config(size)).unwrap(), inputs, lab }
    }
}

impl Bench for Device {
    fn update(&mut self) -> Option<f64> {
        None
    }

    fn backward(&mut self) -> Backward {
        let Self { lab, group, inputs } = self;
        let mut encoder = lab.encoder();
        lab.timeline.listen(false);
        group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..)).unwrap();
        lab.submit(encoder).unwrap();
        lab.timeline.listen(true);
        let round =
            lab.round(&["backward"], |_, encoder| Ok(group.record_backward(encoder, inputs.grads.slice(..))?)).unwrap();
        Backward { seconds: round.phases[0], update: round.stage("update") }
    }
}
