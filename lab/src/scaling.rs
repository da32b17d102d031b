//! Scaled losses (OpenSeq2Seq): the gradients of the tables' outputs are FP16, and a step that overflowed updates nothing.

use crate::dense::values;
use crate::ranks::Ranks;
use burn::tensor::Tensor;
use half::f16;
use hotrow::{CpuScaler, GradSlice, LossScale, ScalerState};
use hotrow_dist::Comm as _;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, Normal};

/// The value of `loss-scale`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Scaling(pub(crate) Option<LossScale>);

const NAMED: [(&str, Option<LossScale>); 3] =
    [("none", None), ("backoff", Some(LossScale::BACKOFF)), ("log-normal", Some(LossScale::LOG_NORMAL))];

/// The numbers of a rule by name.
fn numbers(scale: &LossScale) -> Vec<(&'static str, f32)> {
    match *scale {
        LossScale::Static { scale } => vec![("scale", scale)],
        LossScale::Backoff { min, max, factor, window } => {
            vec![("min", min), ("max", max), ("factor", factor), ("window", window as f32)]
        }
        LossScale::LogNormal { min, max, log_max, beta1, beta2, deviations } => {
            let decays = [("beta1", beta1), ("beta2", beta2), ("deviations", deviations)];
            [("min", min), ("max", max), ("log-max", log_max)].into_iter().chain(decays).collect()
        }
    }
}

/// Sets a number of a rule; `None` if the rule has no such number. The probability that a step overflows is another word for the deviations.
fn set(scale: &mut LossScale, name: &str, to: f32) -> Option<()> {
    match (scale, name) {
        (LossScale::Backoff { min, .. } | LossScale::LogNormal { min, .. }, "min") => *min = to,
        (LossScale::Backoff { max, .. } | LossScale::LogNormal { max, .. }, "max") => *max = to,
        (LossScale::Backoff { factor, .. }, "factor") => *factor = to,
        (LossScale::Backoff { window, .. }, "window") if to.fract() == 0.0 => *window = to as u32,
        (LossScale::LogNormal { log_max, .. }, "log-max") => *log_max = to,
        (LossScale::LogNormal { beta1, .. }, "beta1") => *beta1 = to,
        (LossScale::LogNormal { beta2, .. }, "beta2") => *beta2 = to,
        (LossScale::LogNormal { deviations, .. }, "deviations") => *deviations = to,
        (LossScale::LogNormal { deviations, .. }, "probability") if to > 0.0 && to < 1.0 => {
            *deviations = -Normal::standard().inverse_cdf(to.into()) as f32;
        }
        _ => return None,
    }
    Some(())
}

impl From<Scaling> for String {
    fn from(scaling: Scaling) -> Self {
        let Some(scale) = scaling.0 else { return "none".to_owned() };
        let (name, usual) = match scale {
            LossScale::Static { scale } => return format!("static:{}", rate(scale)),
            LossScale::Backoff { .. } => ("backoff", LossScale::BACKOFF),
            LossScale::LogNormal { .. } => ("log-normal", LossScale::LOG_NORMAL),
        };
        let own = numbers(&scale).into_iter().zip(numbers(&usual)).filter(|(own, usual)| own != usual);
        let own: Vec<Self> = own.map(|((name, number), _)| format!("{name}={}", rate(number))).collect();
        if own.is_empty() { name.to_owned() } else { format!("{name}:{}", own.join(",")) }
    }
}

impl TryFrom<String> for Scaling {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((&text, ""));
        let fixed = || Some(LossScale::Static { scale: (name == "static").then(|| rest.parse().ok())?? });
        let named = || NAMED.iter().find(|(known, scale)| *known == name && (scale.is_some() || rest.is_empty()));
        let mut scale = fixed().map(Some).or_else(|| named().map(|(_, scale)| *scale)).ok_or_else(|| {
            format!(
                "loss-scale: wanted none, static:S, backoff or log-normal, the last two perhaps with numbers as in \
                 backoff:factor=2,window=2000, found {text:?}"
            )
        })?;
        if let Some(scale) = scale.as_mut().filter(|scale| !matches!(scale, LossScale::Static { .. })) {
            for pair in rest.split(',').filter(|pair| !pair.is_empty()) {
                let number =
                    pair.split_once('=').and_then(|(key, number)| Some((key.trim(), number.trim().parse().ok()?)));
                number.and_then(|(key, number)| set(scale, key, number)).ok_or_else(|| {
                    let keys: Vec<&str> = numbers(scale).into_iter().map(|(key, _)| key).collect();
                    let keys = keys.join(", ") + if keys.contains(&"deviations") { " or probability" } else { "" };
                    format!("loss-scale: wanted NUMBER=X of {keys}, found {pair:?}")
                })?;
            }
        }
        scale.map_or(Ok(()), |scale| scale.check()).map_err(|error| format!("loss-scale: {error}"))?;
        Ok(Self(scale))
    }
}

/// A rate as people write it: 0.02, 1, 1e20.
pub(crate) fn rate(rate: f32) -> String {
    format!("{rate:?}").trim_end_matches(".0").to_owned()
}

/// How many gradients are not zero, and how many of them become zero in FP16: those of at most half its least number, 2^-24.
pub(crate) fn lost(gradients: &[Vec<f32>]) -> [u64; 2] {
    let of = |bound: f32| gradients.iter().flatten().filter(|x| **x != 0.0 && x.abs() <= bound).count() as u64;
    [of(f32::INFINITY), of(f32::from(f16::MIN_POSITIVE_SUBNORMAL) / 2.0)]
}

/// Gradients in FP16; too large ones become infinite.
pub(crate) fn halves(gradients: &[f32]) -> Vec<f16> {
    gradients.iter().map(|&x| f16::from_f32(x)).collect()
}

/// Whether a step overflowed, by the gradients of the tables and of the dense part. All ranks take one decision, by the gradients of all.
pub(crate) fn decide(
    scaler: &mut CpuScaler,
    of_tables: &[Vec<f16>],
    of_weights: &[Option<Tensor<2>>],
    ranks: Option<Ranks<'_>>,
) -> anyhow::Result<ScalerState> {
    let of_weights = of_weights.iter().flatten().cloned().flat_map(values);
    let of_tables = of_tables.iter().flatten().map(|half| half.to_f32());
    // The bits of magnitudes are in their order, infinity above all numbers, and not-a-number above that.
    let own = of_tables.chain(of_weights).map(|x| x.abs().to_bits()).max().unwrap_or(0);
    let greatest = ranks.map_or(Ok(own), |mut ranks| ranks.max(own))?;
    scaler.inspect(GradSlice::F32(&[f32::from_bits(greatest)]));
    Ok(scaler.decide()?)
}

#[cfg(test)]
mod tests {
    use super::{Scaling, decide, halves, lost};
    use crate::dense::{cpu, tensor};
    use half::f16;
    use hotrow::LossScale;

    #[test]
    fn what_overflows() {
        let wanted = [0x3c00, 0x7bff, 0xfc00, 0].map(f16::from_bits);
        assert_eq!(halves(&[1.0, 65504.0, -70000.0, 1e-9]), wanted);
        let verdict = |of_tables: f32, weight: f32| {
            let weight = tensor(vec![weight], [1, 1], &cpu()).require_grad();
            let gradients = weight.clone().square().sum().backward();
            let mut scaler = hotrow::CpuScaler::new(LossScale::BACKOFF).unwrap();
            let of_weights = [weight.grad(&gradients), None];
            decide(&mut scaler, &[halves(&[of_tables])], &of_weights, None).unwrap().overflowed()
        };
        assert!(!verdict(1.0, 1.0) && verdict(1e5, 1.0) && verdict(1.0, f32::MAX) && verdict(f32::NAN, 1.0));
    }

    #[test]
    fn numbers_of_rules_are_read_and_written() {
        let read = |text: &str| Scaling::try_from(text.to_owned());
        for text in [
            "none",
            "static:0.5",
            "backoff",
            "backoff:max=65536,factor=4,window=50",
            "log-normal",
            "log-normal:beta1=0.5",
        ] {
            assert_eq!(String::from(read(text).unwrap()), text);
        }
        let LossScale::LogNormal { deviations, beta2, .. } =
            read("log-normal:probability=0.025,beta2=0.9").unwrap().0.unwrap()
        else {
            panic!()
        };
        assert!((deviations - 1.959_964).abs() < 1e-5 && beta2 == 0.9, "{deviations}");
        assert_eq!(read("log-normal:deviations=3.09,beta2=0.999").unwrap().0, Some(LossScale::LOG_NORMAL));
        let wrong = [
            "none:factor=2",
            "backoff:probability=0.1",
            "backoff:window=2.5",
            "backoff:factor",
            "log-normal:probability=1",
            "log-normal:window=3",
            "backoff:factor=1",
        ];
        for text in wrong {
            assert!(read(text).unwrap_err().starts_with("loss-scale: "), "{text}");
        }
    }

    #[test]
    fn what_half_precision_loses() {
        let gradients: Vec<f32> =
            (0..200).map(|i| 2f32.powf(-20.0 - f32::from(i as u8) / 20.0)).chain([0.0, -1e-9, f32::NAN, 7e4]).collect();
        let zeros = halves(&gradients)
            .iter()
            .zip(&gradients)
            .filter(|&(half, x)| half.to_bits() & 0x7fff == 0 && *x != 0.0)
            .count();
        assert_eq!(lost(&[gradients[..7].to_vec(), gradients[7..].to_vec()]), [202, zeros as u64]);
        assert!((90..110).contains(&zeros), "half of them: {zeros}");
    }
}
