// Flat arrays, four numbers at a time where the length allows it. A thread takes one element; 256 threads a workgroup. With
// HALF an array of Stored is half precision in memory; numbers are computed as Element, in single precision, always.
const VECTORS = true;
const HALF = false;
//! if VECTORS
alias Element = vec4f;
//! else
alias Element = f32;
//! end
//! if VECTORS && HALF
alias Stored = vec4<f16>;
//! end
//! if !VECTORS && HALF
alias Stored = f16;
//! end
//! if !HALF
alias Stored = Element;
//! end

// Workgroups stand in rows of at most 65,535, the most that WebGPU lets one dimension have.
fn flat_index(group: vec3u, groups: vec3u, lane: u32) -> u32 {
    return (group.y * groups.x + group.x) * 256u + lane;
}
