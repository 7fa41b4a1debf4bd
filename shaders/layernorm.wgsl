//! kernel layernorm
//! include element
//! include reduce
// LANES threads a row, THREADS/LANES rows a workgroup.
const EPS = 1e-5;
//! if VECTORS
fn total_of(value: Element) -> f32 { return dot(value, Element(1.0)); }
//! else
fn total_of(value: Element) -> f32 { return value; }
//! end
struct Sizes { R: u32, C: u32, width: u32, share: f32 } // width: elements of a row; share: 1/C, for division is not exact
@group(0) @binding(0) var<storage, read> x: array<Stored>; // [R,C]
@group(0) @binding(1) var<storage, read> weight: array<Element>; // [C]
@group(0) @binding(2) var<storage, read> bias: array<Element>; // [C]
@group(0) @binding(3) var<storage, read_write> y: array<Stored>; // [R,C]
@group(0) @binding(4) var<storage, read_write> mean: array<f32>; // [R]
@group(0) @binding(5) var<storage, read_write> rstd: array<f32>; // [R]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(THREADS)
fn layernorm(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let row = (group.y * groups.x + group.x) * (THREADS / LANES) + lane / LANES;
    let inside = row < sizes.R;
    let start = row * sizes.width;
    let stop = select(0u, sizes.width, inside);
    var sum = Element(0.0);
    for (var c = lane % LANES; c < stop; c += LANES) {
        sum += Element(x[start + c]);
    }
    let centre = reduce_sum(total_of(sum), lane) * sizes.share;
    var squares = Element(0.0);
    for (var c = lane % LANES; c < stop; c += LANES) {
        let centred = Element(x[start + c]) - centre;
        squares += centred * centred;
    }
    let scale = 1.0 / sqrt(reduce_sum(total_of(squares), lane) * sizes.share + EPS);
    for (var c = lane % LANES; c < stop; c += LANES) {
        y[start + c] = Stored((Element(x[start + c]) - centre) * scale * weight[c] + bias[c]);
    }
    if (inside && lane % LANES == 0u) {
        mean[row] = centre;
        rstd[row] = scale;
    }
}

//! kernel layernorm_backward
//! include element
//! include reduce
// One dispatch does rows (dx) and, in further workgroups, sums down blocks of BLOCK rows into scratch; a second adds the
// blocks up into dweight and dbias. scratch: [blocks][2][C].
const BLOCK = 64u;
struct Sizes { R: u32, C: u32, width: u32, share: f32, accumulate: u32, row_groups: u32, blocks: u32 }
@group(0) @binding(0) var<storage, read> dy: array<Stored>; // [R,C]
@group(0) @binding(1) var<storage, read> x: array<Stored>; // [R,C]
@group(0) @binding(2) var<storage, read> weight: array<Element>; // [C]
@group(0) @binding(3) var<storage, read> mean: array<f32>; // [R]
@group(0) @binding(4) var<storage, read> rstd: array<f32>; // [R]
@group(0) @binding(5) var<storage, read_write> dx: array<Stored>; // [R,C]
@group(0) @binding(6) var<storage, read_write> dweight: array<Element>; // [C]
@group(0) @binding(7) var<storage, read_write> dbias: array<Element>; // [C]
@group(0) @binding(8) var<storage, read_write> scratch: array<Element>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include layernorm_rows
// 32 columns by 8 threads that take every eighth row; the eight are added up in order.
var<workgroup> parts: array<array<Element, 64>, 8>;

fn columns(block: u32, column_group: u32, lane: u32) {
    let c = column_group * 32u + lane % 32u;
    let part = lane / 32u;
    var g_sum = Element(0.0);
    var gx_sum = Element(0.0);
    if (c < sizes.width) {
        for (var r = block * BLOCK + part; r < min(sizes.R, (block + 1u) * BLOCK); r += 8u) {
            let g = Element(dy[r * sizes.width + c]);
            g_sum += g;
            gx_sum += g * ((Element(x[r * sizes.width + c]) - mean[r]) * rstd[r]);
        }
    }
    parts[part][lane % 32u] = gx_sum;
    parts[part][32u + lane % 32u] = g_sum;
    workgroupBarrier();
    if (lane < 64u) {
        let column = column_group * 32u + lane % 32u;
        if (column < sizes.width) {
            var sum = parts[0][lane];
            for (var p = 1u; p < 8u; p++) {
                sum += parts[p][lane];
            }
            scratch[(block * 2u + lane / 32u) * sizes.width + column] = sum;
        }
    }
}

@compute @workgroup_size(THREADS)
fn layernorm_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let id = group.y * groups.x + group.x;
    if (id < sizes.row_groups) {
        rows(id, lane);
    } else {
        columns((id - sizes.row_groups) % sizes.blocks, (id - sizes.row_groups) / sizes.blocks, lane);
    }
}

@compute @workgroup_size(64)
fn layernorm_backward_total(@builtin(global_invocation_id) id: vec3u) {
    let c = id.x % sizes.width;
    let which = id.x / sizes.width;
    if (which < 2u) {
        var sum = Element(0.0);
        for (var block = 0u; block < sizes.blocks; block++) {
            sum += scratch[(block * 2u + which) * sizes.width + c];
        }
        if (which == 0u) {
            dweight[c] += sum;
        } else {
            dbias[c] += sum;
        }
    }
}

//! kernel layernorm_backward_input
//! include element
//! include reduce
struct Sizes { R: u32, C: u32, width: u32, share: f32, accumulate: u32 }
@group(0) @binding(0) var<storage, read> dy: array<Stored>; // [R,C]
@group(0) @binding(1) var<storage, read> x: array<Stored>; // [R,C]
@group(0) @binding(2) var<storage, read> weight: array<Element>; // [C]
@group(0) @binding(3) var<storage, read> mean: array<f32>; // [R]
@group(0) @binding(4) var<storage, read> rstd: array<f32>; // [R]
@group(0) @binding(5) var<storage, read_write> dx: array<Stored>; // [R,C]
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include layernorm_rows
@compute @workgroup_size(THREADS)
fn layernorm_backward_input(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    rows(group.y * groups.x + group.x, lane);
}
