//! A device of wgpu whose kernels the lane executor runs. Commands are recorded and run at `submit`, on the caller's thread. It does what
//! compute kernels on buffers ask of a device and panics, with the name, at everything else.

/// Methods that panic with their name: what a kernel on buffers does not need.
macro_rules! absent {
    ($(fn $name:ident $arguments:tt $(-> $result:ty)?;)*) => {
        $(fn $name $arguments $(-> $result)? {
            panic!(concat!("the lane executor has no ", stringify!($name)))
        })*
    };
}

mod adapter;
mod buffer;
mod code;
mod commands;
mod config;
mod kernel;
mod queue;
mod world;

use std::sync::Arc;

pub(crate) use code::Code;
pub use config::{Config, Findings};
pub use world::{Recording, World};

/// A device and its queue, for a program to use in place of a card's, and what they share, which has the findings.
#[must_use]
pub fn open(config: &Config) -> (wgpu::Device, wgpu::Queue, Arc<World>) {
    let world = Arc::new(World::new(config));
    let device = wgpu::Device::from_custom(adapter::LaneDevice { world: world.clone() });
    let queue = wgpu::Queue::from_custom(queue::LaneQueue { world: world.clone() });
    (device, queue, world)
}
