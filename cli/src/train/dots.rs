//! Dot products of each row with several others, as one operation of candle's. Out of its own operations it takes strided products,
//! forward and backward, and these took half the time of a step.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

/// `[n, d]` and `[n * k, d]` to `[n, k]`: row i of the first with the rows i k to i k + k - 1 of the second.
pub(crate) fn dots(one: &Tensor, several: &Tensor) -> Result<Tensor> {
    one.contiguous()?.apply_op2(&several.contiguous()?, Dots)
}

struct Dots;

impl CustomOp2 for Dots {
    fn name(&self) -> &'static str {
        "dots"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((n, d), (rows, _)) = (l1.shape().dims2()?, l2.shape().dims2()?);
        let k = rows.checked_div(n).unwrap_or(0);
        if l2.shape().dims() != [n * k, d] || d == 0 {
            bail!("dots: wanted [n, d] and [n * k, d], found {:?} and {:?}", l1.shape(), l2.shape());
        }
        let (one, several) = (values(s1, l1)?, values(s2, l2)?);
        let rows = several.chunks_exact(d).enumerate();
        let products = rows.map(|(at, row)| dot(row, &one[at / k * d..][..d])).collect();
        Ok((CpuStorage::F32(products), (n, k).into()))
    }

    fn bwd(
        &self,
        one: &Tensor,
        several: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let ((n, d), (_, k)) = (one.dims2()?, gradient.dims2()?);
        let flat = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        let (x, rows, gradient) = (flat(one)?, flat(several)?, flat(gradient)?);
        let (mut by_x, mut by_rows) = (vec![0.0; n * d], vec![0.0; n * k * d]);
        for (at, &g) in gradient.iter().enumerate() {
            let (of_x, of_row) = (at / k * d..at / k * d + d, at * d..at * d + d);
            add_scaled(&mut by_x[of_x.clone()], g, &rows[of_row.clone()]);
            add_scaled(&mut by_rows[of_row], g, &x[of_x]);
        }
        let tensor = |values, shape: &Tensor| Tensor::from_vec(values, shape.shape(), shape.device());
        Ok((Some(tensor(by_x, one)?), Some(tensor(by_rows, several)?)))
    }
}

/// The floats of a contiguous tensor.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice()?[start..end]),
        None => bail!("dots: wanted contiguous tensors, found strides {:?}", layout.stride()),
    }
}

/// In eight sums side by side, so that the processor can add them at once.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{D, Device, Var};

    #[test]
    fn the_same_as_out_of_candles_own_operations() {
        for (n, k, d) in [(3, 2, 11), (1, 1, 1), (5, 6, 32)] {
            let value = |i: usize| (hotrow::hash::fmix32(i as u32 + 1) % 1000) as f32 / 500.0 - 1.0;
            let var = |rows: usize, from: usize| {
                let values: Vec<f32> = (0..rows * d).map(|i| value(i + from)).collect();
                Var::from_vec(values, (rows, d), &Device::Cpu).unwrap()
            };
            let (one, several) = (var(n, 0), var(n * k, 10_000));
            let own = dots(&one, &several).unwrap();
            let wide = several.reshape((n, k, d)).unwrap();
            let plain = wide.broadcast_mul(&one.unsqueeze(1).unwrap()).unwrap().sum(D::Minus1).unwrap();
            let gap = |a: &Tensor, b: &Tensor| {
                let apart = (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap();
                apart.to_scalar::<f32>().unwrap()
            };
            assert!(gap(&own, &plain) < 1e-5);
            // A sum in which every product has a weight of its own.
            let weights = var(n, 20_000).narrow(1, 0, 1).unwrap();
            let gradients = |logits: &Tensor| {
                let store =
                    logits.broadcast_mul(&weights).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap();
                [&one, &several].map(|var| store.get(var).unwrap().clone())
            };
            let (own, plain) = (gradients(&own), gradients(&plain));
            assert!(gap(&own[0], &plain[0]) < 1e-4 && gap(&own[1], &plain[1]) < 1e-4);
            assert!(gap(&own[1], &(&plain[1] * 1.01).unwrap()) > 1e-4, "one percent off is told");
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        let zeros = |rows, d| Tensor::zeros((rows, d), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert!(dots(&zeros(2, 3), &zeros(5, 3)).is_err());
        assert!(dots(&zeros(2, 3), &zeros(4, 2)).is_err());
        assert_eq!(dots(&zeros(2, 3), &zeros(4, 3)).unwrap().dims(), [2, 2]);
    }
}
