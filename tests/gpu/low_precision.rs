//! Low precision on a device: the need for stochastic rounding (Zhang 2018, section 2.1), and FP16 gradients.

use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{
    CpuGroup, CpuRobeGroup, GradBuffer, Group, GroupConfig, Init, Lookup, Optimizer, Precision, RobeGroup, robe,
};

use hotrow_harness::{closed_form, device::with_gpu};

#[test]
fn small_updates_add_up_at_random_and_are_lost_to_the_nearest() {
    with_gpu(|context| {
        closed_form::check(96, |config| {
            Box::new(Group::new(context, config).unwrap_or_else(|error| panic!("{error}")))
        });
    });
}

/// A batch with rows that repeat, and halves as gradients, one of them subnormal.
const INDICES: [u32; 6] = [3, 7, 3, 9, 3, 7];
const OFFSETS: [u32; 4] = [0, 3, 5, 6];
const HALVES: [u16; 9] = [0x3c00, 0xb555, 0x0001, 0x3555, 0x4900, 0xc100, 0x2e66, 0x3800, 0xbc00];

/// The rows after a step: with the halves, or with the floats that they stand for.
fn rows_after(table: &mut dyn Lookup, halves: Option<&[u16]>) -> Vec<u32> {
    table.forward(&INDICES, &OFFSETS, None).unwrap();
    match halves {
        Some(halves) => table.backward_half(halves).unwrap(),
        None => table.backward(&HALVES.map(|half| half::f16::from_bits(half).to_f32())).unwrap(),
    }
    table.read_rows(&[3, 7, 9, 4]).unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn halves_are_summed_as_the_floats_that_they_stand_for() {
    with_gpu(|context| {
        let init = Init::Uniform { low: -1.0, high: 1.0 };
        let rows = GroupConfig::new(&[10], 3).with_init(init).with_precision(Precision::Fp32);
        let rows = rows.with_optimizer(Optimizer::adagrad(0.1)).with_cache_rows(5);
        let array = robe::Config::new(&[10], 3, 20, 3).with_init(init).with_optimizer(Optimizer::adagrad(0.1));
        let group = || Group::new(context, rows.clone()).unwrap();
        let makes: [&dyn Fn() -> Box<dyn Lookup>; 4] = [
            &|| Box::new(group()),
            &|| Box::new(CpuGroup::new(rows.clone()).unwrap()),
            &|| Box::new(RobeGroup::new(context, array.clone()).unwrap()),
            &|| Box::new(CpuRobeGroup::new(array.clone()).unwrap()),
        ];
        for make in makes {
            let wanted = rows_after(&mut *make(), None);
            assert_eq!(rows_after(&mut *make(), Some(&HALVES)), wanted);
            let mut others = HALVES;
            others[4] ^= 0x8000;
            assert_ne!(rows_after(&mut *make(), Some(&others)), wanted, "the comparison can fail");
            let mut short = make();
            short.forward(&INDICES, &OFFSETS, None).unwrap();
            assert!(short.backward_half(&HALVES[1..]).is_err());
        }

        // Recorded. The buffer is rounded up to 16 bytes; NaN behind the gradients is not read.
        let mut recorded = group();
        recorded.forward(&INDICES, &OFFSETS, None).unwrap();
        let mut padded = HALVES.to_vec();
        padded.resize(16, 0x7e00);
        let grads = context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(&padded),
            usage: wgpu::BufferUsages::STORAGE,
        });
        let mut encoder = context.device().create_command_encoder(&Default::default());
        recorded.record_backward(&mut encoder, GradBuffer::F16(grads.slice(..))).unwrap();
        context.queue().submit([encoder.finish()]);
        let found: Vec<u32> = recorded.read_rows(&[3, 7, 9, 4]).unwrap().iter().map(|x| x.to_bits()).collect();
        assert_eq!(found, rows_after(&mut group(), None));
    });
}
