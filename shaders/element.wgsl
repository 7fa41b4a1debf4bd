// Flat arrays, four floats at a time where the length allows it. A thread takes one element; 256 threads a workgroup.
const VECTORS = true;
//! if VECTORS
alias Element = vec4f;
//! else
alias Element = f32;
//! end

// Workgroups stand in rows of at most 65,535, the most that WebGPU lets one dimension have.
fn flat_index(group: vec3u, groups: vec3u, lane: u32) -> u32 {
    return (group.y * groups.x + group.x) * 256u + lane;
}
