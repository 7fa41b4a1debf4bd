// out[M,N] = a·b over K, in tiles of TILE_M × TILE_N a workgroup and THREAD_M × THREAD_N a thread, TILE_K at a time through
// workgroup memory. {A}, {B}, {OUT} name buffers; {M}, {N}, {K} sizes. a is [M,K] where A_ALONG_K, else [K,M]; b is [N,K]
// where B_ALONG_K, else [K,N]. The next blocks are on their way to registers while this tile is multiplied. A tile is read
// from memory in blocks of 4 × 4, which a thread turns where they lie along k. group.z owns a chunk of K.
const TILE_M = 64u;
const TILE_N = 64u;
const TILE_K = 32u;
const THREAD_M = 4u;
const THREAD_N = 4u;
const UNROLL_K = 8u;
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
var<workgroup> tile_a: array<vec4f, TILE_K * ROW_A>;
var<workgroup> tile_b: array<vec4f, TILE_K * ROW_B>;

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
    let m = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
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
    let n = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
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
//! if A_ALONG_K
        let at = block % BLOCKS_K * 4u * ROW_A + block / BLOCKS_K;
//! else
        let at = block / ROW_A * 4u * ROW_A + block % ROW_A;
//! end
//! unroll c 4
        tile_a[at + {c}u * ROW_A] = value[{c}];
//! end
    } else if (block < BLOCKS_A + BLOCKS_B) {
        let other = block - BLOCKS_A;
//! if B_ALONG_K
        let at = other % BLOCKS_K * 4u * ROW_B + other / BLOCKS_K;
//! else
        let at = other / ROW_B * 4u * ROW_B + other % ROW_B;
//! end
//! unroll c 4
        tile_b[at + {c}u * ROW_B] = value[{c}];
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
        for (var part = 0u; part < TILE_K; part += UNROLL_K) {
            let at_a = part * ROW_A + ty;
            let at_b = part * ROW_B + tx;
//! unroll i UNROLL_K
            {
//! unroll q QUADS_M
                let a{q} = tile_a[at_a + {i}u * ROW_A + {q}u * TY];
//! end
//! unroll j QUADS_N
                let b{j} = tile_b[at_b + {i}u * ROW_B + {j}u * TX];
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
        }
//! if COLUMN_SUMS
        if (first_m == 0u && lane < ROW_B) {
            for (var i = 0u; i < TILE_K; i++) {
                column_sum += tile_b[i * ROW_B + lane];
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
