//! Numbers of forwards, by which the device tells whether the lists in step scratch are those that a later call continues (SPEC 3).

use std::mem::offset_of;

use crate::{gpu::engine::context::Context, table::abi::Step};

/// Numbers in a buffer. No call makes a buffer but the first of so many steps.
const EACH: u32 = 256;

/// Words of a step that take a number: the offset of the first, and the bytes of all.
pub(crate) type Of = (usize, u64);
/// The commands have decided a step and carried it out.
pub(crate) const WHOLE: Of = (offset_of!(Step, number), 16);
/// They have decided it.
pub(crate) const DECIDED: Of = (offset_of!(Step, number), 8);
/// They carry it out.
pub(crate) const CARRIED: Of = (offset_of!(Step, wanted), 12);
/// They continue it.
pub(crate) const CONTINUED: Of = (offset_of!(Step, continued), 4);

/// The numbers that a group has given its forwards. They are copied within the caller's encoder, so uniforms and bind groups stay.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: u32,
    /// The last two buffers of numbers, each number four times, and what their numbers have in common.
    pages: [Option<(u32, wgpu::Buffer)>; 2],
}

impl Numbers {
    /// The number of a new forward.
    pub(crate) fn next(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.last
    }

    /// Encodes the number of a forward into the words of its step. After commands of another forward those that follow have no effect.
    pub(crate) fn encode(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        (step, (to, bytes)): (&wgpu::Buffer, Of),
        number: u32,
    ) {
        if number == 0 {
            return; // a step of its own, whose words are 0
        }
        let (page, place) = (number / EACH, u64::from(number % EACH) * 16);
        let kept = &mut self.pages[page as usize % 2];
        let (_, numbers) = match kept.take() {
            Some(found) if found.0 == page => kept.insert(found),
            _ => {
                let numbers: Vec<u32> = (0..4 * EACH).map(|i| page * EACH + i / 4).collect();
                kept.insert((page, context.new_uniform(bytemuck::cast_slice(&numbers))))
            }
        };
        encoder.copy_buffer_to_buffer(numbers, place, step, to as u64, bytes);
    }
}
