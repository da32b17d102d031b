//! The gradient by shared weights on the GPU: backward moves by it, it has the CPU's bits and the model's values, and it works
//! with a caller's own encoder and buffers.

use hotrow::{
    Batch, Context, CpuSharedGroup, Error, GradBuffer, GradSlice, GradientBuffer, Optimizer, Pooling, RankBody,
    SharedGroup,
    robe::{Backward, Config, Gradient},
};
use hotrow::{prelude::*, wgpu};

use crate::caller::{self, download, storage};
use hotrow_harness::{
    arrays,
    device::{again, options, share, with_gpu},
    gradient::{dense, descended},
    shared::{Bags, WAYS, bags, config, forward, fp32, random_grads, seeds},
};

/// A configuration whose bits equal the CPU's: sums without weights and SGD at a power of two leave a compiler nothing to fuse.
fn exact(seed: u64) -> Config {
    let pooling = [Pooling::Sum, Pooling::None][seed as usize % 2];
    config(seed).with_pooling(pooling).with_optimizer(Optimizer::sgd(0.5))
}

fn new(context: &Context) -> impl Fn(&Config) -> SharedGroup {
    |config| SharedGroup::new(context, config.clone()).unwrap()
}

#[test]
fn it_is_the_cpu_s_and_backward_a_step_of_sgd_by_it() {
    with_gpu(|context| {
        let narrow = again(&options().rank(RankBody::Portable).max_groups(3));
        for seed in share(seeds("gradients", 30)) {
            for (context, backward) in [(context, WAYS[0]), (context, WAYS[1]), (&narrow, WAYS[seed as usize / 2 % 2])]
            {
                let config = exact(seed).with_backward(backward);
                // The second batch has starts of more than 128 chunks.
                let bags = Bags { weights: None, ..bags(&config, seed, 6 + 20 * (seed as usize % 2), 60) };
                let (found, _, [before, after]) = arrays::step(&new(context), &config, &bags, seed);
                let mirror = |config: &Config| CpuSharedGroup::new(config.clone()).unwrap();
                assert!(found == arrays::step(&mirror, &config, &bags, seed).0, "seed {seed}, {config:?}");
                assert!(descended(&fp32(&before), &found, config.optimizer) == fp32(&after), "seed {seed}");
            }
        }
    });
}

#[test]
fn dense_and_sparse_are_the_model_s() {
    with_gpu(|context| {
        share(seeds("dense and sparse gradients", 24))
            .for_each(|seed| arrays::dense_and_sparse_gradients_are_the_models(&new(context), seed, &config(seed)));
    });
}

#[test]
fn halves_give_what_their_floats_give() {
    with_gpu(|context| {
        seeds("halves", 12)
            .for_each(|seed| arrays::halves_give_what_their_floats_give(&new(context), seed, &exact(seed)));
    });
}

#[test]
fn a_caller_s_buffers_get_the_same() {
    with_gpu(|context| {
        for (seed, empty) in [(1, false), (4, false), (5, false), (4, true)] {
            let config = exact(seed).with_backward(Backward::Sparse);
            let mut bags = Bags { weights: None, ..bags(&config, seed, 12, 30) };
            if empty {
                bags.indices.clear();
                bags.offsets.fill(0);
            }
            let mut waits = SharedGroup::new(context, config.clone()).unwrap();
            let mut records = SharedGroup::new(context, config.clone()).unwrap();
            let grads = random_grads(4, forward(&mut waits, &bags).len());
            let gradient = waits.gradient(GradSlice::F32(&grads)).unwrap();
            let Gradient::Sparse { locations, sums } = gradient.clone() else { panic!("{gradient:?}") };
            let [indices, offsets] =
                [&bags.indices, &bags.offsets].map(|words| storage(context, &[&words[..], &[0]].concat()));
            let (outputs, grads) =
                (storage(context, &vec![f32::NAN; grads.len() + 1]), storage(context, &[&grads[..], &[0.0]].concat()));
            let n = bags.indices.len() as u64;
            let batch = Batch {
                indices: (n > 0).then(|| indices.slice(..4 * n)),
                offsets: offsets.slice(..offsets.size() - 4),
                weights: None,
            };
            let most = config.most_covered(n as u32) as usize;
            assert!(most >= locations.len());
            let wide = storage(context, &vec![f32::NAN; config.weights as usize]);
            let places = storage(context, &vec![7u32; most + 1]);
            let values = storage(context, &vec![f32::NAN; most + 1]);
            let count = storage(context, &[9u32]);
            let into =
                GradientBuffer::Sparse { locations: places.slice(..), sums: values.slice(..), count: count.slice(..) };
            let mut encoder = caller::encoder(context);
            records.encode_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
            let before = fp32(&records.snapshot().unwrap());
            let grads = GradBuffer::F32(grads.slice(..));
            records.encode_gradient(&mut encoder, grads, into).unwrap();
            records.encode_gradient(&mut encoder, grads, GradientBuffer::Dense(wide.slice(..))).unwrap();
            context.queue().submit([encoder.finish()]);
            let found = [&places, &values, &count, &wide].map(|from| download(context, caller::encoder(context), from));
            assert_eq!((found[2][0] as usize, records.pending()), (locations.len(), true), "seed {seed}");
            assert_eq!(found[0][..locations.len()], locations);
            assert!(found[0][locations.len()..].iter().all(|&place| place == 7), "beyond the count nothing is written");
            let bits = |sums: &[f32]| sums.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(found[1][..sums.len()], bits(&sums));
            assert_eq!(found[3], bits(&dense(&config, &gradient)));
            assert_eq!(fp32(&records.snapshot().unwrap()), before);
        }
    });
}

#[test]
fn wrong_buffers_are_named() {
    with_gpu(|context| {
        let mut group = SharedGroup::new(context, Config::new(&[10], 4, 64, 4)).unwrap();
        assert!(matches!(group.gradient(GradSlice::F32(&[])), Err(Error::Order { call: "gradient", .. })));
        group.forward(&[1, 2], &[0, 1, 2], None).unwrap();
        assert!(matches!(
            group.gradient(GradSlice::F32(&[1.0])),
            Err(Error::Length { what: "grad_outputs", wanted: 8, found: 1 })
        ));
        let before = group.snapshot().unwrap();
        let usage = wgpu::BufferUsages::STORAGE;
        let made = |size, usage| caller::buffer(context, size, usage);
        let grads = storage(context, &[1.0f32; 8]);
        let [sums, other, places] = [(); 3].map(|()| made(256, usage | wgpu::BufferUsages::COPY_DST));
        let (short, bare) = (made(252, usage | wgpu::BufferUsages::COPY_DST), made(256, usage));
        let tiny = made(28, usage | wgpu::BufferUsages::COPY_DST);
        let unbound = made(256, wgpu::BufferUsages::COPY_DST);
        let mut refused = |into| {
            let error = group
                .encode_gradient(&mut caller::encoder(context), GradBuffer::F32(grads.slice(..)), into)
                .unwrap_err();
            match error {
                Error::Buffer { what, wanted, .. } => (what, wanted),
                other => panic!("{other:?}"),
            }
        };
        let (own, sums_name) = ("a buffer of its own", "gradient's sums");
        assert_eq!(refused(GradientBuffer::Dense(grads.slice(..))), (sums_name, own.into()));
        assert_eq!(refused(GradientBuffer::Dense(short.slice(..))), (sums_name, "256 bytes".into()));
        assert_eq!(refused(GradientBuffer::Dense(bare.slice(..))), (sums_name, "usage COPY_DST".into()));
        assert_eq!(refused(GradientBuffer::Dense(unbound.slice(..))), (sums_name, "usage STORAGE".into()));
        let (locations, count) = ("gradient's locations", "gradient's count");
        for (place, counts, wanted) in [
            (&grads, &other, (locations, own)),
            (&sums, &other, (sums_name, own)),
            (&places, &sums, (count, own)),
            (&places, &bare, (count, "usage COPY_DST")),
            (&tiny, &other, (locations, "32 bytes")),
        ] {
            let into =
                GradientBuffer::Sparse { locations: place.slice(..), sums: sums.slice(..), count: counts.slice(..) };
            assert_eq!(refused(into), (wanted.0, wanted.1.to_owned()));
        }
        assert_eq!((group.snapshot().unwrap(), group.pending()), (before, true));
    });
}
