//! kernel unembed
// Of the vocabulary a dispatch may have a piece: V rows of wte, and as many columns of logits, whose lines are `line` numbers
// long. Where it is summed over, the sums of a piece are the chunks from first_chunk on.
const A_ALONG_K = true;
const B_ALONG_K = true;
const COLUMN_SUMS = false;
const HALF_OUT = false;
//! include matmul A=x B=wte M=sizes.R N=sizes.V K=sizes.C A_LINE=sizes.C OUT_LINE=sizes.line
struct Sizes { R: u32, C: u32, V: u32, line: u32, chunk: u32, chunks: u32, first_chunk: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> x: array<ElementA>; // [R,C]
@group(0) @binding(1) var<storage, read> wte: array<ElementB>; // [V,C]
@group(0) @binding(2) var<storage, read_write> logits: array<ElementOut>; // [R,V]
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    logits[at] = value;
//! end
}

@compute @workgroup_size(THREADS)
fn unembed(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = (sizes.first_chunk + group.z) * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.C, start + sizes.chunk), lane);
}

@compute @workgroup_size(256)
fn unembed_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        let width = sizes.V / PER_ELEMENT;
        logits[i / width * (sizes.line / PER_ELEMENT) + i % width] = sum_of_chunks(i);
    }
}

//! kernel unembed_backward_input
const A_ALONG_K = true;
const B_ALONG_K = false;
const COLUMN_SUMS = false;
const HALF_OUT = true;
//! include matmul A=dlogits B=wte M=sizes.R N=sizes.C K=sizes.V A_LINE=sizes.line OUT_LINE=sizes.C
struct Sizes { R: u32, C: u32, V: u32, line: u32, chunk: u32, chunks: u32, first_chunk: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> dlogits: array<ElementA>; // [R,V]
@group(0) @binding(1) var<storage, read> wte: array<ElementB>; // [V,C]
@group(0) @binding(2) var<storage, read_write> dx: array<ElementOut>; // [R,C]
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    dx[at] = ElementOut(value);
//! end
}

@compute @workgroup_size(THREADS)
fn unembed_backward_input(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = (sizes.first_chunk + group.z) * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.V, start + sizes.chunk), lane);
}

@compute @workgroup_size(256)
fn unembed_backward_input_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        dx[i] = ElementOut(sum_of_chunks(i));
    }
}

//! kernel unembed_backward_weight
const A_ALONG_K = false;
const B_ALONG_K = false;
const COLUMN_SUMS = false;
const HALF_OUT = false;
//! include matmul A=dlogits B=x M=sizes.V N=sizes.C K=sizes.R A_LINE=sizes.line OUT_LINE=sizes.C
struct Sizes { R: u32, C: u32, V: u32, line: u32, chunk: u32, chunks: u32, first_chunk: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> x: array<ElementB>; // [R,C]
@group(0) @binding(1) var<storage, read> dlogits: array<ElementA>; // [R,V]
@group(0) @binding(2) var<storage, read_write> dwte: array<ElementOut>; // [V,C]
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    dwte[at] += value;
//! end
}

@compute @workgroup_size(THREADS)
fn unembed_backward_weight(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = (sizes.first_chunk + group.z) * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.R, start + sizes.chunk), lane);
}

@compute @workgroup_size(256)
fn unembed_backward_weight_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        dwte[i] += sum_of_chunks(i);
    }
}
