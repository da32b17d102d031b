//! Scaled losses (OpenSeq2Seq): the gradients of the tables' outputs are FP16, and a step that overflowed updates nothing.

use crate::dense::values;
use crate::ranks::Ranks;
use crate::task::rate;
use burn::tensor::Tensor;
use half::f16;
use hotrow::{CpuScaler, GradSlice, LossScale, ScalerState};
use hotrow_dist::Comm as _;
use serde::{Deserialize, Serialize};

/// The value of `loss-scale`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Scaling(pub(crate) Option<LossScale>);

/// The scales that have a name.
const NAMED: [(&str, Option<LossScale>); 4] = [
    ("none", None),
    ("backoff", Some(LossScale::BACKOFF)),
    ("log-normal", Some(LossScale::LOG_NORMAL)),
    ("log-normal-original", Some(LossScale::LOG_NORMAL_ORIGINAL)),
];

impl From<Scaling> for String {
    fn from(scaling: Scaling) -> Self {
        match (NAMED.iter().find(|(_, scale)| *scale == scaling.0), scaling.0) {
            (Some((name, _)), _) => (*name).to_owned(),
            (None, Some(LossScale::Static { scale })) => format!("static:{}", rate(scale)),
            (None, other) => format!("{other:?}"),
        }
    }
}

impl TryFrom<String> for Scaling {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, scale)| *scale);
        let fixed = || Some(LossScale::Static { scale: text.strip_prefix("static:")?.parse().ok()? });
        let scale = named.or_else(|| fixed().map(Some)).ok_or_else(|| {
            format!("loss-scale: wanted none, static:S, backoff, log-normal or log-normal-original, found {text:?}")
        })?;
        scale.map_or(Ok(()), |scale| scale.check()).map_err(|error| error.to_string())?;
        Ok(Self(scale))
    }
}

/// Gradients in FP16; too large ones become infinite.
pub(crate) fn halves(gradients: &[f32]) -> Vec<u16> {
    gradients.iter().map(|&x| f16::from_f32(x).to_bits()).collect()
}

/// Whether a step overflowed, by the gradients of the tables and of the dense part. All ranks take one decision, by the gradients of all.
pub(crate) fn decide(
    scaler: &mut CpuScaler,
    of_tables: &[Vec<u16>],
    of_weights: &[Option<Tensor<2>>],
    ranks: Option<Ranks<'_>>,
) -> anyhow::Result<ScalerState> {
    let of_weights = of_weights.iter().flatten().cloned().flat_map(values);
    let of_tables = of_tables.iter().flatten().map(|&half| f16::from_bits(half).to_f32());
    // The bits of magnitudes are in their order, infinity above all numbers, and not-a-number above that.
    let own = of_tables.chain(of_weights).map(|x| x.abs().to_bits()).max().unwrap_or(0);
    let greatest = ranks.map_or(Ok(own), |mut ranks| ranks.max(own))?;
    scaler.inspect(GradSlice::F32(&[f32::from_bits(greatest)]));
    Ok(scaler.decide()?)
}

#[cfg(test)]
mod tests {
    use super::{decide, halves};
    use crate::dense::{cpu, tensor};
    use hotrow::LossScale;

    #[test]
    fn what_overflows() {
        assert_eq!(halves(&[1.0, 65504.0, -70000.0, 1e-9]), [0x3c00, 0x7bff, 0xfc00, 0]);
        let verdict = |of_tables: f32, weight: f32| {
            let weight = tensor(vec![weight], [1, 1], &cpu()).require_grad();
            let gradients = weight.clone().square().sum().backward();
            let mut scaler = hotrow::CpuScaler::new(LossScale::BACKOFF).unwrap();
            let of_weights = [weight.grad(&gradients), None];
            decide(&mut scaler, &[halves(&[of_tables])], &of_weights, None).unwrap().overflowed()
        };
        assert!(!verdict(1.0, 1.0) && verdict(1e5, 1.0) && verdict(1.0, f32::MAX) && verdict(f32::NAN, 1.0));
    }
}
