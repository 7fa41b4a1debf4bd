//! kernel lora
// hidden = x·down, then y += strength·(hidden·up), in one dispatch: a row's ranks stay in workgroup memory. y is read and
// written by one thread each.
//! include lora_rank
//! include element
const TOGETHER = 4u; // rows that a number of up is read for
//! if HALF
alias Number = f16;
//! else
alias Number = f32;
//! end
//! if VECTORS
const PER = 4u; // columns of an element
//! else
const PER = 1u;
//! end
struct Sizes { R: u32, I: u32, O: u32, K: u32, J: u32, first: u32 }
@group(0) @binding(0) var<storage, read> x: array<Number>; // [R,I]
@group(0) @binding(1) var<storage, read> down: array<Ranks>; // [I,K]
@group(0) @binding(2) var<storage, read> up: array<Element>; // [K,J]
@group(0) @binding(3) var<storage, read> strength: array<f32>; // [1]
@group(0) @binding(4) var<storage, read_write> y: array<Stored>; // [R,O]
@group(0) @binding(5) var<storage, read_write> hidden: array<f32>; // [R,K]
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include lora_quad W=down
fn weights_of(i: u32, quad: u32) -> vec4f {
    return quad_of_down(i, quad);
}

//! include lora_rows X=x
@compute @workgroup_size(THREADS)
fn lora(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = (group.y * groups.x + group.x) * ROWS;
    row_sums(first_row, sizes.I, 0u, sizes.I, lane);
    for (var e = lane; e < ROWS * sizes.K; e += THREADS) {
        let row = e / sizes.K;
        let k = e % sizes.K;
        if (first_row + row < sizes.R) {
            hidden[first_row * sizes.K + e] = parts[part_of(row, k / 4u)][k % 4u];
        }
    }
    if (strength[0] == 0.0) {
        return; // y as it is, even where the adapter holds what is not finite
    }
    let width = sizes.J / PER;
    for (var e = lane; e < ROWS / TOGETHER * width; e += THREADS) {
        let column = e % width;
        let row = e / width * TOGETHER;
//! unroll t TOGETHER
        var change{t} = Element(0.0);
//! end
        for (var quad = 0u; quad < QUADS; quad++) {
//! unroll c 4
            let up{c} = up[min(quad * 4u + {c}u, sizes.K - 1u) * width + column]; // past K the row's ranks are 0
//! end
//! unroll t TOGETHER
            let ranks{t} = parts[part_of(row + {t}u, quad)];
            change{t} += ranks{t}.x * up0 + ranks{t}.y * up1 + ranks{t}.z * up2 + ranks{t}.w * up3;
//! end
        }
//! unroll t TOGETHER
        if (first_row + row + {t}u < sizes.R) {
            let at = ((first_row + row + {t}u) * sizes.O + sizes.first) / PER + column;
            y[at] = Stored(Element(y[at]) + strength[0] * change{t});
        }
//! end
    }
}

//! kernel lora_backward_hidden
//! include lora_rank
const HALF = false;
//! if HALF
alias Number = f16;
//! else
alias Number = f32;
//! end
struct Sizes { R: u32, O: u32, K: u32, J: u32, first: u32 }
@group(0) @binding(0) var<storage, read> dy: array<Number>; // [R,O]
@group(0) @binding(1) var<storage, read> up: array<f32>; // [K,J]
@group(0) @binding(2) var<storage, read> strength: array<f32>; // [1]
@group(0) @binding(3) var<storage, read_write> dhidden: array<f32>; // [R,K]
@group(0) @binding(15) var<uniform> sizes: Sizes;

fn weights_of(i: u32, quad: u32) -> vec4f {
    let k = quad * 4u;
    var found = vec4f(up[k * sizes.J + i], 0.0, 0.0, 0.0);
    if (k + 1u < sizes.K) { found.y = up[(k + 1u) * sizes.J + i]; }
    if (k + 2u < sizes.K) { found.z = up[(k + 2u) * sizes.J + i]; }
    if (k + 3u < sizes.K) { found.w = up[(k + 3u) * sizes.J + i]; }
    return found;
}

//! include lora_rows X=dy
@compute @workgroup_size(THREADS)
fn lora_backward_hidden(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = (group.y * groups.x + group.x) * ROWS;
    row_sums(first_row, sizes.O, sizes.first, sizes.J, lane);
    for (var e = lane; e < ROWS * sizes.K; e += THREADS) {
        let row = e / sizes.K;
        let k = e % sizes.K;
        if (first_row + row < sizes.R) {
            dhidden[first_row * sizes.K + e] = strength[0] * parts[part_of(row, k / 4u)][k % 4u];
        }
    }
}

//! kernel lora_backward_input
// A thread has TOGETHER rows of one element of dx.
//! include lora_rank
//! include element
const TOGETHER = 4u;
struct Sizes { R: u32, I: u32, K: u32, width: u32, accumulate: u32 } // width: elements of a row of I numbers
@group(0) @binding(0) var<storage, read> dhidden: array<Ranks>; // [R,K]
@group(0) @binding(1) var<storage, read> down: array<Ranks>; // [I,K]
@group(0) @binding(2) var<storage, read_write> dx: array<Stored>; // [R,I]
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include lora_quad W=dhidden
//! include lora_quad W=down
@compute @workgroup_size(256)
fn lora_backward_input(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let e = flat_index(group, groups, lane);
    let column = e % sizes.width;
    let row = e / sizes.width * TOGETHER;
    if (row >= sizes.R) {
        return;
    }
//! unroll t TOGETHER
    var sum{t} = Element(0.0);
    let row{t} = min(row + {t}u, sizes.R - 1u);
//! end
    for (var quad = 0u; quad < QUADS; quad++) {
//! if VECTORS
//! unroll c 4
        let down{c} = quad_of_down(column * 4u + {c}u, quad);
//! end
//! else
        let down0 = quad_of_down(column, quad);
//! end
//! unroll t TOGETHER
        let ranks{t} = quad_of_dhidden(row{t}, quad);
//! if VECTORS
        sum{t} += vec4f(dot(ranks{t}, down0), dot(ranks{t}, down1), dot(ranks{t}, down2), dot(ranks{t}, down3));
//! else
        sum{t} += dot(ranks{t}, down0);
//! end
//! end
    }
//! unroll t TOGETHER
    if (row + {t}u < sizes.R) {
        let at = row{t} * sizes.width + column;
        if (sizes.accumulate != 0u) {
            dx[at] = Stored(Element(dx[at]) + sum{t});
        } else {
            dx[at] = Stored(sum{t});
        }
    }
//! end
}

//! kernel lora_backward_weight
// A thread has a column of x or of dy's part, EACH fours of ranks, and a block of rows, four at a time; a second dispatch adds the blocks up.
// scratch: [blocks][I·K sums of ddown, then K·J of dup].
//! include lora_rank
const HALF = false;
const EACH = 1u; // divides QUADS
//! if HALF
alias Number = f16;
//! else
alias Number = f32;
//! end
struct Sizes { R: u32, I: u32, O: u32, K: u32, J: u32, first: u32, blocks: u32, block: u32, input_groups: u32 } // block: rows of one
@group(0) @binding(0) var<storage, read> x: array<Number>; // [R,I]
@group(0) @binding(1) var<storage, read> hidden: array<Ranks>; // [R,K]
@group(0) @binding(2) var<storage, read> dhidden: array<Ranks>; // [R,K]
@group(0) @binding(3) var<storage, read> dy: array<Number>; // [R,O]
@group(0) @binding(4) var<storage, read> strength: array<f32>; // [1]
@group(0) @binding(5) var<storage, read_write> ddown: array<f32>; // [I,K]
@group(0) @binding(6) var<storage, read_write> dup: array<f32>; // [K,J]
@group(0) @binding(8) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(15) var<uniform> sizes: Sizes;

//! include lora_quad W=hidden
//! include lora_quad W=dhidden
// Rank k's sums lie `stride` apart from `start` on, as far as there are ranks.
fn store(start: u32, stride: u32, quad: u32, sum: vec4f) {
    let k = quad * 4u;
    scratch[start + k * stride] = sum.x;
    if (k + 1u < sizes.K) { scratch[start + (k + 1u) * stride] = sum.y; }
    if (k + 2u < sizes.K) { scratch[start + (k + 2u) * stride] = sum.z; }
    if (k + 3u < sizes.K) { scratch[start + (k + 3u) * stride] = sum.w; }
}

@compute @workgroup_size(256)
fn lora_backward_weight(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let stop = min(sizes.R, (group.z + 1u) * sizes.block);
    let scratch_start = group.z * (sizes.I + sizes.J) * sizes.K;
    let quad = group.y * EACH;
//! unroll q EACH
    var sum{q} = vec4f();
//! end
    if (group.x < sizes.input_groups) {
        let i = group.x * 256u + lane;
        if (i < sizes.I) {
            for (var r = group.z * sizes.block; r < stop; r += 4u) {
//! unroll u 4
                let row{u} = min(r + {u}u, stop - 1u);
                let value{u} = select(0.0, f32(x[row{u} * sizes.I + i]), r + {u}u < stop);
//! end
//! unroll u 4
//! unroll q EACH
                sum{q} += value{u} * quad_of_dhidden(row{u}, quad + {q}u);
//! end
//! end
            }
//! unroll q EACH
            store(scratch_start + i * sizes.K, 1u, quad + {q}u, sum{q});
//! end
        }
    } else {
        let j = (group.x - sizes.input_groups) * 256u + lane;
        if (j < sizes.J) {
            for (var r = group.z * sizes.block; r < stop; r += 4u) {
//! unroll u 4
                let row{u} = min(r + {u}u, stop - 1u);
                let value{u} = select(0.0, f32(dy[row{u} * sizes.O + sizes.first + j]), r + {u}u < stop);
//! end
//! unroll u 4
//! unroll q EACH
                sum{q} += value{u} * quad_of_hidden(row{u}, quad + {q}u);
//! end
//! end
            }
//! unroll q EACH
            store(scratch_start + sizes.I * sizes.K + j, sizes.J, quad + {q}u, sum{q});
//! end
        }
    }
}

@compute @workgroup_size(256)
fn lora_backward_weight_total(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let e = (group.y * groups.x + group.x) * 256u + lane;
    let inputs = sizes.I * sizes.K;
    let whole = inputs + sizes.K * sizes.J;
    if (e < whole) {
        var four = vec4f(); // sums that do not wait for each other
        for (var block = 0u; block < sizes.blocks; block += 4u) {
//! unroll u 4
            if (block + {u}u < sizes.blocks) { four.{xyzw[u]} += scratch[(block + {u}u) * whole + e]; }
//! end
        }
        let sum = (four.x + four.y) + (four.z + four.w);
        if (e < inputs) {
            ddown[e] += sum;
        } else {
            dup[e - inputs] += strength[0] * sum;
        }
    }
}
