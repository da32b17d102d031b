use hotrow::*;

use crate::device::with_gpu;

#[test]
fn whole_circle() {
    with_gpu(|context| {
        for precision in Precision::ALL {
            for cache_rows in [0, 32, 64] {
                let mut config = GroupConfig::new(&[100, 50], 5);
                config.precision = precision;
                config.cache_rows = cache_rows;
                config.shard_bytes = Some(400);
                config.init = Init::Uniform { low: -1.0, high: 1.0 };
                config.optimizer = Optimizer::adagrad(0.1);
                let mut group = Group::new(context, config).unwrap();
                let indices = [3, 3, 7, 99, 0, 49, 49];
                let offsets = [0, 2, 4, 5, 7];
                let out = group.forward(&indices, &offsets, None).unwrap();
                println!("{precision:?} {cache_rows} {:?}", &out[..5]);
                group.backward(&vec![0.5; out.len()]).unwrap();
                let rows = group.read_rows(&[3]).unwrap();
                println!("row 3 {rows:?}");
                group.flush().unwrap();
                let again = group.forward(&indices, &offsets, None).unwrap();
                println!("{:?}", &again[..5]);
                println!("{:?}", group.counters().unwrap());
            }
        }
    });
}
