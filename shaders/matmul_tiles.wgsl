// The product by ordinary arithmetic, in tiles of TILE_M × TILE_N a workgroup and THREAD_M × THREAD_N a thread, TILE_K at a
// time through workgroup memory. The next blocks are on their way to registers while this tile is multiplied. A tile is read
// from memory in blocks of 4 × 4, which a thread turns where they lie along k. With two BUFFERS the next tile is written while
// slower threads still multiply this one: a barrier a tile, not two.
const BUFFERS = 1u;
const HALF_TILES = false; // workgroup memory holds halves: twice the tile in the same memory, a conversion a value read
const TILE_M = 64u;
const TILE_N = 64u;
const TILE_K = 32u;
const THREAD_M = 4u;
const THREAD_N = 4u;
const K_FIRST = true; // neighbouring threads read neighbouring blocks along k, where a block lies along k
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
//! if HALF && HALF_TILES
alias TileScalar = f16;
alias TileVector = vec4<f16>;
alias Block = mat4x4<f16>;
//! else
alias TileScalar = f32;
alias TileVector = vec4f;
alias Block = mat4x4f;
//! end
// Rows of one k. The k of an access is written out as a number, so that the check of the other index, which drivers and
// browsers add, is the same for all of them and is made once.
//! unroll h BUFFERS
var<workgroup> tile_a{h}: array<array<TileVector, ROW_A>, TILE_K>;
var<workgroup> tile_b{h}: array<array<TileVector, ROW_B>, TILE_K>;
//! end

// Four floats of a row of a from `column` on; zero outside.
fn row_of_a(row: u32, column: u32, rows: u32, columns: u32, stride: u32) -> TileVector {
    var value = TileVector();
    if (row < rows && column < columns) {
//! if VECTORS_A
        value = TileVector({A}[(row * stride + column) / 4u]);
//! else
        let start = row * stride + column;
        value.x = TileScalar({A}[start]);
        if (column + 1u < columns) { value.y = TileScalar({A}[start + 1u]); }
        if (column + 2u < columns) { value.z = TileScalar({A}[start + 2u]); }
        if (column + 3u < columns) { value.w = TileScalar({A}[start + 3u]); }
//! end
    }
    return value;
}

fn row_of_b(row: u32, column: u32, rows: u32, columns: u32, stride: u32) -> TileVector {
    var value = TileVector();
    if (row < rows && column < columns) {
//! if VECTORS_B
        value = TileVector({B}[(row * stride + column) / 4u]);
//! else
        let start = row * stride + column;
        value.x = TileScalar({B}[start]);
        if (column + 1u < columns) { value.y = TileScalar({B}[start + 1u]); }
        if (column + 2u < columns) { value.z = TileScalar({B}[start + 2u]); }
        if (column + 3u < columns) { value.w = TileScalar({B}[start + 3u]); }
//! end
    }
    return value;
}

// Block `block` of the tile of a at (first, k): four vectors along m, one for each of four k.
fn block_of_a(block: u32, first: u32, k: u32, stop: u32) -> Block {
//! if A_ALONG_K
//! if K_FIRST
    let m = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
//! else
    let m = first + block % ROW_A * 4u;
    let from_k = k + block / ROW_A * 4u;
//! end
    return transpose(Block(
        row_of_a(m, from_k, {M}, stop, {A_LINE}),
        row_of_a(m + 1u, from_k, {M}, stop, {A_LINE}),
        row_of_a(m + 2u, from_k, {M}, stop, {A_LINE}),
        row_of_a(m + 3u, from_k, {M}, stop, {A_LINE})));
//! else
    let m = first + block % ROW_A * 4u;
    let from_k = k + block / ROW_A * 4u;
    return Block(
        row_of_a(from_k, m, stop, {M}, {A_LINE}),
        row_of_a(from_k + 1u, m, stop, {M}, {A_LINE}),
        row_of_a(from_k + 2u, m, stop, {M}, {A_LINE}),
        row_of_a(from_k + 3u, m, stop, {M}, {A_LINE}));
//! end
}

fn block_of_b(block: u32, first: u32, k: u32, stop: u32) -> Block {
//! if B_ALONG_K
//! if K_FIRST
    let n = first + block / BLOCKS_K * 4u;
    let from_k = k + block % BLOCKS_K * 4u;
//! else
    let n = first + block % ROW_B * 4u;
    let from_k = k + block / ROW_B * 4u;
//! end
    return transpose(Block(
        row_of_b(n, from_k, {N}, stop, {K}),
        row_of_b(n + 1u, from_k, {N}, stop, {K}),
        row_of_b(n + 2u, from_k, {N}, stop, {K}),
        row_of_b(n + 3u, from_k, {N}, stop, {K})));
//! else
    let n = first + block % ROW_B * 4u;
    let from_k = k + block / ROW_B * 4u;
    return Block(
        row_of_b(from_k, n, stop, {N}, {N}),
        row_of_b(from_k + 1u, n, stop, {N}, {N}),
        row_of_b(from_k + 2u, n, stop, {N}, {N}),
        row_of_b(from_k + 3u, n, stop, {N}, {N}));
//! end
}

fn load_block(block: u32, first_m: u32, first_n: u32, k: u32, stop: u32) -> Block {
    if (block < BLOCKS_A) {
        return block_of_a(block, first_m, k, stop);
    }
    return block_of_b(block - BLOCKS_A, first_n, k, stop);
}

//! unroll h BUFFERS
fn store_block_{h}(block: u32, value: Block) {
    if (block < BLOCKS_A) {
//! if A_ALONG_K && K_FIRST
        let k = block % BLOCKS_K * 4u;
        let m = block / BLOCKS_K;
//! else
        let k = block / ROW_A * 4u;
        let m = block % ROW_A;
//! end
//! unroll c 4
        tile_a{h}[k + {c}u][m] = value[{c}];
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
        tile_b{h}[k + {c}u][n] = value[{c}];
//! end
    }
}
//! end

// The thread's sums: sum_qrj is row 4·(ty + q·TY) + r of the tile, columns 4·(tx + j·TX) … + 3.
//! unroll q QUADS_M
//! unroll r 4
//! unroll j QUADS_N
var<private> sum_{q}{r}{j}: vec4f;
//! end
//! end
//! end

fn multiply(first_m: u32, first_n: u32, start: u32, stop: u32, lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
//! unroll s LOADS
    var staged_{s} = load_block(lane + {s}u * THREADS, first_m, first_n, start, stop);
//! end
    for (var k = start; k < stop; k += BUFFERS * TILE_K) {
//! unroll h BUFFERS
//! if BUFFERS == 1
        workgroupBarrier();
//! end
//! unroll s LOADS
        store_block_{h}(lane + {s}u * THREADS, staged_{s});
//! end
        workgroupBarrier();
//! if BUFFERS == 1
        if (k + TILE_K < stop) {
//! unroll s LOADS
            staged_{s} = load_block(lane + {s}u * THREADS, first_m, first_n, k + TILE_K, stop);
//! end
        }
//! else
        // Past the end this gives zeros, which the other buffer's turn may then multiply.
//! unroll s LOADS
        staged_{s} = load_block(lane + {s}u * THREADS, first_m, first_n, k + {h+1}u * TILE_K, stop);
//! end
//! end
//! unroll i TILE_K
        {
//! unroll q QUADS_M
            let a{q} = vec4f(tile_a{h}[{i}][ty + {q}u * TY]);
//! end
//! unroll j QUADS_N
            let b{j} = vec4f(tile_b{h}[{i}][tx + {j}u * TX]);
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
                column_sum += vec4f(tile_b{h}[i][lane]);
            }
        }
//! end
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

fn product(first_m: u32, first_n: u32, start: u32, stop: u32, lane: u32) {
    multiply(first_m, first_n, start, stop, lane);
    store_sums(first_m, first_n, lane);
}
