//! Numbers of forwards, by which the device tells whether the lists in step scratch are those that a later call continues (SPEC 3).

use crate::{gpu::engine::context::Context, table::abi::Step};

/// Numbers in a buffer. No call makes a buffer but the first of so many steps.
const EACH: u32 = 256;

/// What the commands do with the lists in step scratch.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    /// They have decided and carried out a step.
    Whole,
    /// They have decided it.
    Decided,
    /// They carry it out.
    Carried,
    /// They continue it.
    Continued,
}

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
        (step, of): (&wgpu::Buffer, Of),
        number: u32,
    ) {
        let (to, bytes) = match of {
            Of::Whole => (std::mem::offset_of!(Step, number), 16),
            Of::Decided => (std::mem::offset_of!(Step, number), 8),
            Of::Carried => (std::mem::offset_of!(Step, wanted), 12),
            Of::Continued => (std::mem::offset_of!(Step, continued), 4),
        };
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
