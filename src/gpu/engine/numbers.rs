//! Numbers of forwards, by which the device tells whether the lists in step scratch are those that a later call continues (SPEC 3).

use crate::{gpu::engine::context::Context, table::abi::Step};

/// Numbers in a buffer. No call makes a buffer but the first of so many steps.
const EACH: u32 = 256;

/// The numbers that a group has given its forwards. They are copied within the caller's encoder, so uniforms and bind groups stay.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: u32,
    /// The last two buffers of numbers, each number twice, and what their numbers have in common.
    pages: [Option<(u32, wgpu::Buffer)>; 2],
}

impl Numbers {
    /// Encodes that a forward has written the lists of `step`, and returns its number.
    pub(crate) fn begin(&mut self, context: &Context, encoder: &mut wgpu::CommandEncoder, step: &wgpu::Buffer) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.copy(context, encoder, (step, std::mem::offset_of!(Step, number), 8), self.last);
        self.last
    }

    /// Encodes that the commands that follow continue the forward `number`. Those of other lists than its have no effect.
    pub(crate) fn go_on(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        step: &wgpu::Buffer,
        number: u32,
    ) {
        self.copy(context, encoder, (step, std::mem::offset_of!(Step, wanted), 4), number);
    }

    fn copy(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        (step, to, bytes): (&wgpu::Buffer, usize, u64),
        number: u32,
    ) {
        let (page, place) = (number / EACH, u64::from(number % EACH) * 8);
        let kept = &mut self.pages[page as usize % 2];
        let (_, numbers) = match kept.take() {
            Some(found) if found.0 == page => kept.insert(found),
            _ => {
                let numbers: Vec<u32> = (0..2 * EACH).map(|i| page * EACH + i / 2).collect();
                kept.insert((page, context.new_uniform(bytemuck::cast_slice(&numbers))))
            }
        };
        encoder.copy_buffer_to_buffer(numbers, place, step, to as u64, bytes);
    }
}
