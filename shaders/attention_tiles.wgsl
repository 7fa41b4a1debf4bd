// Tiles of FlashAttention: ROWS rows against COLS columns of scores, 4 × 4 a thread, D floats of a head CHUNK at a time.
// Thread (tx, ty) owns rows ty + TY·i and columns tx + TX·j. tile_p holds what multiplies the columns' vectors: the vector
// tx of a row is columns tx, tx + TX, tx + 2·TX, tx + 3·TX. Rows are padded by one vector, so that neighbours read other banks.
const D = 64u;
const ROWS = 32u;
const COLS = 32u;
const CHUNK = 32u;
const VECTORS = true;
const TX = COLS / 4u;
const TY = ROWS / 4u;
const THREADS = TX * TY;
const WIDE = CHUNK / 4u; // vectors of a chunk, at most TX
const CHUNKS = (D + CHUNK - 1u) / CHUNK;
const STRIDE = WIDE + 1u;
const STRIDE_P = TX + 1u;
const SCALE = inverseSqrt(f32(D));
const LOWEST = -3.4e38;
//! if VECTORS
alias Element = vec4f;
//! else
alias Element = f32;
//! end
struct Sizes { B: u32, T: u32, H: u32 }
var<workgroup> tile_x: array<vec4f, ROWS * STRIDE>;
var<workgroup> tile_y: array<vec4f, COLS * STRIDE>;
var<workgroup> tile_p: array<vec4f, ROWS * STRIDE_P>;
var<workgroup> lanes: array<vec4f, THREADS>;

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
