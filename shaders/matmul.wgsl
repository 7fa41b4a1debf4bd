// out[M,N] = a·b over K, in tiles of TILE_M × TILE_N a workgroup and THREAD_M × THREAD_N a thread, TILE_K at a time through
// workgroup memory. {A}, {B}, {OUT} name buffers; {M}, {N}, {K} sizes. a is [M,K] where A_ALONG_K, else [K,M]; b is [N,K]
// where B_ALONG_K, else [K,N]. The next blocks are on their way to registers while this tile is multiplied. A tile is read
// from memory in blocks of 4 × 4, which a thread turns where they lie along k. group.z owns a chunk of K.
const TILE_M = 64u;
const TILE_N = 64u;
const TILE_K = 32u;
const THREAD_M = 4u;
const THREAD_N = 4u;
const K_FIRST = true; // neighbouring threads read neighbouring blocks along k, where a block lies along k
const SPLIT = false; // K is cut into chunks, whose sums a second dispatch adds up
const VECTORS_A = true; // a row of a, of b, of out starts at a multiple of four floats
const VECTORS_B = true;
const VECTORS_OUT = true;
const TX = TILE_N / THREAD_N;
const TY = TILE_M / THREAD_M;
const THREADS = TX * TY;
const QUADS_M = THREAD_M / 4u;
const QUADS_N = THREAD_N / 4u;
const BLOCKS_A = TILE_M * TILE_K / 16u;
const BLOCKS_B = TILE_N * TILE_K / 16u;
const LOADS = (BLOCKS_A + BLOCKS_B + THREADS - 1u) / THREADS;
const ROW_A = TILE_M / 4u; // vectors in a row of k
const ROW_B = TILE_N / 4u;
const BLOCKS_K = TILE_K / 4u;
//! if VECTORS_A
alias ElementA = vec4f;
//! else
alias ElementA = f32;
//! end
//! if VECTORS_B
alias ElementB = vec4f;
//! else
alias ElementB = f32;
//! end
//! if VECTORS_OUT
alias ElementOut = vec4f;
//! else
alias ElementOut = f32;
//! end
// Rows of one k. The k of an access is written out as a number, so that the check of the other index, which drivers and
// browsers add, is the same for all of them and is made once.
var<workgroup> tile_a: array<array<vec4f, ROW_A>, TILE_K>;
var<workgroup> tile_b: array<array<vec4f, ROW_B>, TILE_K>;

// Four floats of a row of a from `column` on; zero outside.
fn row_of_a(row: u32, column: u32, rows: u32, columns: u32, stride: u32) -> vec4f {
    var value = vec4f(0.0);
    if (row < rows && column < columns) {
//! if VECTORS_A
        value = {A}[(row * stride + column) / 4u];
//! else
        let start = row * stride + column;
        value.x = {A}[start];
        if (column + 1u < columns) { value.y = {A}[start + 1u]; }
        if (column + 2u < columns) { value.z = {A}[start + 2u]; }
        if (column + 3u < columns) { value.w = {A}[start + 3u]; }
//! end
    }
    return value;
}

fn row_of_b(row: u32, column: u32, rows: u32, columns: u32, stride: u32) -> vec4f {
    var value = vec4f(0.0);
    if (row < rows && column < columns) {
//! if VECTORS_B
        value = {B}[(row * stride + column) / 4u];
//! else
        let start = row * stride + column;
        value.x = {B}[start];
        if (column + 1u < columns) { value.y = {B}[start + 1u]; }
        if (column + 2u < columns) { value.z = {B}[start + 2u]; }
        if (column + 3u < columns) { value.w = {B}[start + 3u]; }
//! end
    }
    return value;
}

// Block `block` of the tile of a at (first, k): four vectors along m, one for each of four k.
fn block_of_a(block: u32, first: u32, k: u32, stop: u32) -> mat4x4f {
//! if A_ALONG_K
//! if K_FIRST
    let m = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
//! else
    let m = first + block % ROW_A * 4u;
    let from_k = k + block / ROW_A * 4u;
//! end
    return transpose(mat4x4f(
        row_of_a(m, from_k, {M}, stop, {K}),
        row_of_a(m + 1u, from_k, {M}, stop, {K}),
        row_of_a(m + 2u, from_k, {M}, stop, {K}),
        row_of_a(m + 3u, from_k, {M}, stop, {K})));
//! else
    let m = first + block % ROW_A * 4u;
    let from_k = k + block / ROW_A * 4u;
    return mat4x4f(
        row_of_a(from_k, m, stop, {M}, {M}),
        row_of_a(from_k + 1u, m, stop, {M}, {M}),
        row_of_a(from_k + 2u, m, stop, {M}, {M}),
        row_of_a(from_k + 3u, m, stop, {M}, {M}));
//! end
}

fn block_of_b(block: u32, first: u32, k: u32, stop: u32) -> mat4x4f {
//! if B_ALONG_K
//! if K_FIRST
    let n = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
//! else
    let n = first + block % ROW_B * 4u;
    let from_k = k + block / ROW_B * 4u;
//! end
    return transpose(mat4x4f(
        row_of_b(n, from_k, {N}, stop, {K}),
        row_of_b(n + 1u, from_k, {N}, stop, {K}),
        row_of_b(n + 2u, from_k, {N}, stop, {K}),
        row_of_b(n + 3u, from_k, {N}, stop, {K})));
//! else
    let n = first + block % ROW_B * 4u;
    let from_k = k + block / ROW_B * 4u;
    return mat4x4f(
        row_of_b(from_k, n, stop, {N}, {N}),
        row_of_b(from_k + 1u, n, stop, {N}, {N}),
        row_of_b(from_k + 2u, n, stop, {N}, {N}),
        row_of_b(from_k + 3u, n, stop, {N}, {N}));
//! end
}

fn load_block(block: u32, first_m: u32, first_n: u32, k: u32, stop: u32) -> mat4x4f {
    if (block < BLOCKS_A) {
        return block_of_a(block, first_m, k, stop);
    }
    return block_of_b(block - BLOCKS_A, first_n, k, stop);
}

fn store_block(block: u32, value: mat4x4f) {
    if (block < BLOCKS_A) {
//! if A_ALONG_K && K_FIRST
        let k = block % BLOCKS_K * 4u;
        let m = block / BLOCKS_K;
//! else
        let k = block / ROW_A * 4u;
        let m = block % ROW_A;
//! end
//! unroll c 4
        tile_a[k + {c}u][m] = value[{c}];
//! end
    } else if (block < BLOCKS_A + BLOCKS_B) {
        let other = block - BLOCKS_A;
//! if B_ALONG_K && K_FIRST
        let k = other % BLOCKS_K * 4u;
        let n = other / BLOCKS_K;
//! else
        let k = other / ROW_B * 4u;
        let n = other % ROW_B;
//! end
//! unroll c 4
        tile_b[k + {c}u][n] = value[{c}];
//! end
    }
}

// The thread's sums: sum_qrj is row 4·(ty + q·TY) + r of the tile, columns 4·(tx + j·TX) … + 3.
//! unroll q QUADS_M
//! unroll r 4
//! unroll j QUADS_N
var<private> sum_{q}{r}{j}: vec4f;
//! end
//! end
//! end
//! if COLUMN_SUMS
var<private> column_sum: vec4f; // of b down the chunk of K, by the first TILE_N/4 threads
//! end

fn multiply(first_m: u32, first_n: u32, start: u32, stop: u32, lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
//! unroll s LOADS
    var staged_{s} = load_block(lane + {s}u * THREADS, first_m, first_n, start, stop);
//! end
    for (var k = start; k < stop; k += TILE_K) {
        workgroupBarrier();
//! unroll s LOADS
        store_block(lane + {s}u * THREADS, staged_{s});
//! end
        workgroupBarrier();
        if (k + TILE_K < stop) {
//! unroll s LOADS
            staged_{s} = load_block(lane + {s}u * THREADS, first_m, first_n, k + TILE_K, stop);
//! end
        }
//! unroll i TILE_K
        {
//! unroll q QUADS_M
            let a{q} = tile_a[{i}][ty + {q}u * TY];
//! end
//! unroll j QUADS_N
            let b{j} = tile_b[{i}][tx + {j}u * TX];
//! end
//! unroll q QUADS_M
//! unroll r 4
//! unroll j QUADS_N
            sum_{q}{r}{j} = fma(vec4f(a{q}.{xyzw[r]}), b{j}, sum_{q}{r}{j});
//! end
//! end
//! end
        }
//! end
//! if COLUMN_SUMS
        if (first_m == 0u && lane < ROW_B) {
            for (var i = 0u; i < TILE_K; i++) {
                column_sum += tile_b[i][lane];
            }
        }
//! end
    }
}

// One vector of the result to `column` … + 3 of a row, as far as the row goes.
fn store_out(row: u32, column: u32, value: vec4f) {
    if (row < {M} && column < {N}) {
//! if VECTORS_OUT
        write_out((row * {N} + column) / 4u, column / 4u, value);
//! else
        let at = row * {N} + column;
        write_out(at, column, value.x);
        if (column + 1u < {N}) { write_out(at + 1u, column + 1u, value.y); }
        if (column + 2u < {N}) { write_out(at + 2u, column + 2u, value.z); }
        if (column + 3u < {N}) { write_out(at + 3u, column + 3u, value.w); }
//! end
    }
}

fn store_sums(first_m: u32, first_n: u32, lane: u32) {
    let row = first_m + lane / TX * 4u;
    let column = first_n + lane % TX * 4u;
//! unroll q QUADS_M
//! unroll r 4
//! unroll j QUADS_N
    store_out(row + {q}u * TY * 4u + {r}u, column + {j}u * TX * 4u, sum_{q}{r}{j});
//! end
//! end
//! end
}

//! if VECTORS_OUT
const PER_ELEMENT = 4u; // floats of an element of scratch
//! else
const PER_ELEMENT = 1u;
//! end
var<private> scratch_start: u32;

// Sum i of all chunks, in their order.
fn sum_of_chunks(i: u32) -> ElementOut {
    var sum = scratch[i];
    for (var chunk = 1u; chunk < sizes.chunks; chunk++) {
        sum += scratch[chunk * sizes.whole + i];
    }
    return sum;
}
