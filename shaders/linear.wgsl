//! kernel linear
// A sum is cut into chunks (SPLIT) where there are too few tiles to keep the device busy. scratch: [chunks][sums].
const EPILOGUE = 0u; // 1: other = gelu(y); 2: y += other
const A_ALONG_K = true;
const B_ALONG_K = false;
const COLUMN_SUMS = false;
const HALF_OUT = true;
//! include matmul A=x B=weight M=sizes.R N=sizes.O K=sizes.I A_LINE=sizes.I OUT_LINE=sizes.O
struct Sizes { R: u32, I: u32, O: u32, chunk: u32, chunks: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> x: array<ElementA>; // [R,I]
@group(0) @binding(1) var<storage, read> weight: array<ElementB>; // [I,O]
@group(0) @binding(2) var<storage, read> bias: array<ElementSum>; // [O]
@group(0) @binding(3) var<storage, read_write> y: array<ElementOut>; // [R,O]
//! if EPILOGUE == 1
@group(0) @binding(4) var<storage, read_write> other: array<ElementOut>; // [R,O]
//! end
//! if EPILOGUE == 2
@group(0) @binding(4) var<storage, read> other: array<ElementOut>; // [R,O]
//! end
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include matmul_epilogue
fn finish(at: u32, column: u32, sum: ElementSum) {
    let value = sum + bias[column];
//! if EPILOGUE == 2
    y[at] = ElementOut(value + ElementSum(other[at]));
//! else
    y[at] = ElementOut(value);
//! end
//! if EPILOGUE == 1
    other[at] = ElementOut(gelu(value));
//! end
}

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    finish(at, column, value);
//! end
}

@compute @workgroup_size(THREADS)
fn linear(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = group.z * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.I, start + sizes.chunk), lane);
}

@compute @workgroup_size(256)
fn linear_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        finish(i, i % (sizes.O / PER_ELEMENT), sum_of_chunks(i));
    }
}

//! kernel linear_backward_input
const EPILOGUE = 0u; // 3: dx *= the slope of gelu at other
const A_ALONG_K = true;
const B_ALONG_K = true;
const COLUMN_SUMS = false;
const HALF_OUT = true;
//! include matmul A=dy B=weight M=sizes.R N=sizes.I K=sizes.O A_LINE=sizes.O OUT_LINE=sizes.I
struct Sizes { R: u32, I: u32, O: u32, chunk: u32, chunks: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> dy: array<ElementA>; // [R,O]
@group(0) @binding(1) var<storage, read> weight: array<ElementB>; // [I,O]
@group(0) @binding(2) var<storage, read_write> dx: array<ElementOut>; // [R,I]
//! if EPILOGUE == 3
@group(0) @binding(4) var<storage, read> other: array<ElementOut>; // [R,I]
//! end
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include matmul_epilogue
fn finish(at: u32, sum: ElementSum) {
//! if EPILOGUE == 3
    dx[at] = ElementOut(sum * gelu_slope(ElementSum(other[at])));
//! else
    dx[at] = ElementOut(sum);
//! end
}

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    finish(at, value);
//! end
}

@compute @workgroup_size(THREADS)
fn linear_backward_input(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = group.z * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.O, start + sizes.chunk), lane);
}

@compute @workgroup_size(256)
fn linear_backward_input_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        finish(i, sum_of_chunks(i));
    }
}

//! kernel linear_backward_weight
// A chunk of scratch: I·O sums of dweight, then O of dbias.
const A_ALONG_K = false;
const B_ALONG_K = false;
const COLUMN_SUMS = true;
const HALF_OUT = false;
//! include matmul A=x B=dy M=sizes.I N=sizes.O K=sizes.R A_LINE=sizes.I OUT_LINE=sizes.O
struct Sizes { R: u32, I: u32, O: u32, chunk: u32, chunks: u32, whole: u32 }
@group(0) @binding(0) var<storage, read> x: array<ElementA>; // [R,I]
@group(0) @binding(1) var<storage, read> dy: array<ElementB>; // [R,O]
@group(0) @binding(2) var<storage, read_write> dweight: array<ElementOut>; // [I,O]
@group(0) @binding(3) var<storage, read_write> dbias: array<ElementOut>; // [O]
@group(0) @binding(8) var<storage, read_write> scratch: array<ElementSum>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

fn write_out(at: u32, column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + at] = value;
//! else
    dweight[at] += value;
//! end
}

fn write_bias(column: u32, value: ElementSum) {
//! if SPLIT
    scratch[scratch_start + sizes.I * sizes.O / PER_ELEMENT + column] = value;
//! else
    dbias[column] += value;
//! end
}

@compute @workgroup_size(THREADS)
fn linear_backward_weight(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let start = group.z * sizes.chunk;
    scratch_start = group.z * sizes.whole;
    product(group.y * TILE_M, group.x * TILE_N, start, min(sizes.R, start + sizes.chunk), lane);
    let column = group.x * TILE_N + lane * 4u;
    if (group.y == 0u && lane < TILE_N / 4u && column < sizes.O) {
//! if VECTORS_OUT
        write_bias(column / 4u, column_sum);
//! else
        write_bias(column, column_sum.x);
        if (column + 1u < sizes.O) { write_bias(column + 1u, column_sum.y); }
        if (column + 2u < sizes.O) { write_bias(column + 2u, column_sum.z); }
        if (column + 3u < sizes.O) { write_bias(column + 3u, column_sum.w); }
//! end
    }
}

@compute @workgroup_size(256)
fn linear_backward_weight_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.whole) {
        let count = sizes.I * sizes.O / PER_ELEMENT;
        if (i < count) {
            dweight[i] += sum_of_chunks(i);
        } else {
            dbias[i - count] += sum_of_chunks(i);
        }
    }
}
