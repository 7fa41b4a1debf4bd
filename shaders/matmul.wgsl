// out[M,N] = a·b over K. {A}, {B}, {OUT} name buffers; {M}, {N}, {K} sizes. a is [M,K] where A_ALONG_K, else [K,M]; b is
// [N,K] where B_ALONG_K, else [K,N]. A line of a is {A_LINE} numbers long and one of out {OUT_LINE}: more than their part of it
// where a product is made in pieces. A workgroup has a tile of the result: product() adds it up and hands it to write_out.
// group.z owns a chunk of K. With HALF a and b are stored in half precision (out too where HALF_OUT); sums are single
// precision always. With TENSOR (which needs HALF) the device's matrix units multiply.
const HALF = false;
const TENSOR = false;
const SPLIT = false; // K is cut into chunks, whose sums a second dispatch adds up
const VECTORS_A = true; // a row of a, of b, of out starts at a multiple of four numbers
const VECTORS_B = true;
const VECTORS_OUT = true;
const TRANSPOSED = false; // matrix units: what lies the other way than in a·b of NN is turned on its way into workgroup memory
const TURN_A = TENSOR && TRANSPOSED && !A_ALONG_K;
const TURN_B = TENSOR && TRANSPOSED && B_ALONG_K;
//! include matmul_elements
//! if COLUMN_SUMS
var<private> column_sum: vec4f; // of b down the chunk of K, by the first TILE_N/4 threads
//! end
//! if TENSOR
//! include matmul_tensor
//! else
//! include matmul_tiles
//! end
