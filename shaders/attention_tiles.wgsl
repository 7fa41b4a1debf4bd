// Tiles of FlashAttention: ROWS rows against COLS columns of scores, RT × CT a thread, D floats of a head CHUNK at a time.
// Thread (tx, ty) owns rows ty + TY·i and columns tx + TX·j. tile_p holds what multiplies the columns' vectors: the vector
// q·TX + tx of a row is columns tx + TX·4q … tx + TX·(4q+3). Neighbours must read other banks: rows are padded by PAD vectors,
// or (PAD 0) their vectors are swapped about by the row. Where an access has an index that is written out, the check of the
// other, added by drivers and browsers, is made once for all.
const D = 64u;
const ROWS = 32u;
const COLS = 32u;
const CHUNK = 32u;
const RT = 4u;
const CT = 4u;
const UNROLL_D = 2u;
const UNROLL_T = 1u;
const PAD = 1u;
const VECTORS = true;
const HALF = false; // storage; everything is computed in single precision
// RESIDENT: all of D at once, and the rows' tiles filled once for the whole walk: CHUNK is D rounded up.
const PREFETCH = false; // RESIDENT: the next columns wait in registers
const SPARE = false; // a workgroup tile more, a barrier or two less
const PAIRED = false; // RESIDENT: two threads for each place of a tile, one for q·k, one for dy·v
const HALVED = false; // PAIRED: the two share a sum over the columns by its vectors
const TX = COLS / CT;
const TY = ROWS / RT;
const QUADS_R = RT / 4u;
const QUADS_C = CT / 4u;
const PLACES = TX * TY;
//! if PAIRED
const THREADS = 2u * PLACES;
//! else
const THREADS = PLACES;
//! end
const WIDE = CHUNK / 4u; // vectors of a chunk
const CHUNKS = (D + CHUNK - 1u) / CHUNK;
//! if HALVED
const HOP = 2u * TX; // between the vectors of a chunk that a thread sums
//! else
const HOP = TX;
//! end
const QUADS_D = (WIDE + HOP - 1u) / HOP; // how many: one where CHUNK is streamed
const LOADS_X = (ROWS * WIDE + THREADS - 1u) / THREADS;
const LOADS_Y = (COLS * WIDE + THREADS - 1u) / THREADS;
const STRIDE = WIDE + PAD;
const STRIDE_P = COLS / 4u + 1u;
const TURN = 7u * (1u - PAD);
const SCALE = inverseSqrt(f32(D));
const LOG2E = 1.4426950408889634;
const SCALE2 = SCALE * LOG2E; // scores as powers of two
const LOWEST = -3.4e38;
//! if VECTORS && HALF
alias Element = vec4<f16>;
//! end
//! if VECTORS && !HALF
alias Element = vec4f;
//! end
//! if !VECTORS && HALF
alias Element = f16;
//! end
//! if !VECTORS && !HALF
alias Element = f32;
//! end
struct Sizes { B: u32, T: u32, H: u32 }
var<workgroup> tile_x: array<array<vec4f, STRIDE>, ROWS>;
var<workgroup> tile_y: array<array<vec4f, STRIDE>, COLS>;
var<workgroup> tile_p: array<array<vec4f, STRIDE_P>, ROWS>;
var<workgroup> lanes: array<vec4f, THREADS * QUADS_R>; // a thread's quads of rows
