// Tiles of FlashAttention: ROWS rows against COLS columns of scores, RT × CT a thread, D floats of a head CHUNK at a time.
// Thread (tx, ty) owns rows ty + TY·i and columns tx + TX·j. tile_p holds what multiplies the columns' vectors: the vector
// q·TX + tx of a row is columns tx + TX·4q … tx + TX·(4q+3). Rows are padded by one vector: neighbours read other banks. Where
// an access has an index that is written out, the check of the other, added by drivers and browsers, is made once for all.
const D = 64u;
const ROWS = 32u;
const COLS = 32u;
const CHUNK = 32u;
const RT = 4u;
const CT = 4u;
const UNROLL_D = 2u;
const VECTORS = true;
const TX = COLS / CT;
const TY = ROWS / RT;
const QUADS_R = RT / 4u;
const QUADS_C = CT / 4u;
const THREADS = TX * TY;
const WIDE = CHUNK / 4u; // vectors of a chunk, at most TX
const CHUNKS = (D + CHUNK - 1u) / CHUNK;
const LOADS_X = (ROWS * WIDE + THREADS - 1u) / THREADS;
const LOADS_Y = (COLS * WIDE + THREADS - 1u) / THREADS;
const STRIDE = WIDE + 1u;
const STRIDE_P = COLS / 4u + 1u;
const SCALE = inverseSqrt(f32(D));
const LOWEST = -3.4e38;
//! if VECTORS
alias Element = vec4f;
//! else
alias Element = f32;
//! end
struct Sizes { B: u32, T: u32, H: u32 }
var<workgroup> tile_x: array<array<vec4f, STRIDE>, ROWS>;
var<workgroup> tile_y: array<array<vec4f, STRIDE>, COLS>;
var<workgroup> tile_p: array<array<vec4f, STRIDE_P>, ROWS>;
var<workgroup> lanes: array<vec4f, THREADS>; // one of a thread's quads of rows

// Sums over the TX threads of a row; four rows a thread.
fn sum_over_row(value: vec4f, tx: u32, ty: u32) -> vec4f {
    workgroupBarrier();
    lanes[ty * TX + tx] = value;
    workgroupBarrier();
    var total = lanes[ty * TX];
    for (var t = 1u; t < TX; t++) {
        total += lanes[ty * TX + t];
    }
    return total;
}

fn max_over_row(value: vec4f, tx: u32, ty: u32) -> vec4f {
    workgroupBarrier();
    lanes[ty * TX + tx] = value;
    workgroupBarrier();
    var top = lanes[ty * TX];
    for (var t = 1u; t < TX; t++) {
        top = max(top, lanes[ty * TX + t]);
    }
    return top;
}
