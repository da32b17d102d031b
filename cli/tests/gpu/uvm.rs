//! The unified-memory baseline moves real bytes: what came up and went down again is what the host had.

use hotrow_cli::uvm::{UvmBus, UvmTraffic};
use hotrow_harness::device::with_gpu;

#[test]
fn pages_cross_and_contents_stay_right() {
    with_gpu(|context| {
        let bus = UvmBus::new(context).unwrap();
        let page = 4096;
        let [up, down] = bus.ends(1024).unwrap();
        assert!(up != down && down.iter().all(|&word| word == 0), "nothing has moved");
        // One page and a half of words, since a page is the least that moves.
        assert!(bus.carry(UvmTraffic { pages_in: 2, pages_out: 0 }, page).unwrap() > 0.0);
        assert_ne!(bus.ends(1024).unwrap()[0], bus.ends(1024).unwrap()[1], "what only came has not gone back");
        assert!(bus.carry(UvmTraffic { pages_in: 0, pages_out: 1 }, page).unwrap() > 0.0);
        let [up, down] = bus.ends(2048).unwrap();
        assert_eq!(up[..1024], down[..1024]);
        assert_ne!(up[1024..], down[1024..], "one page went back, not two");
        // More than the staging buffers hold goes in pieces.
        let many = UvmTraffic { pages_in: 40, pages_out: 40 };
        assert!(bus.carry(many, 2 << 20).unwrap() > 0.0);
        let [up, down] = bus.ends(2048).unwrap();
        assert_eq!(up, down);
    });
}
