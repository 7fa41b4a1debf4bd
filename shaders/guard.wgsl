//! kernel guard
// The engine's own, after a step's last AdamW. state: loss scale, good steps since it changed, halted, 1/scale, and the
// scale that the gradients have. A scale is a power of two, so that multiplying by it is exact.
const SCALED = false;
struct Sizes { growth_steps: u32 }
@group(0) @binding(0) var<storage, read> norm: array<f32>; // [1]
@group(0) @binding(9) var<storage, read_write> state: array<f32>; // [5]
@group(0) @binding(15) var<uniform> sizes: Sizes;
const LARGEST = 16777216.0;

@compute @workgroup_size(1)
fn guard() {
    let finite = (bitcast<u32>(norm[0]) & 0x7f800000u) != 0x7f800000u;
//! if SCALED
    state[4] = state[0];
    state[1] += 1.0;
    if (!finite) {
        state[1] = 0.0;
        if (state[0] > 1.0) {
            state[0] *= 0.5;
            state[3] *= 2.0;
        }
    } else if (state[1] >= f32(sizes.growth_steps)) {
        state[1] = 0.0;
        if (state[0] < LARGEST) {
            state[0] *= 2.0;
            state[3] *= 0.5;
        }
    }
//! else
    if (!finite) {
        state[2] = 1.0;
    }
//! end
}
