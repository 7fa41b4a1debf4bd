//! kernel attention
// FlashAttention-2 (arXiv 2307.08691) with online softmax (arXiv 1805.02867): a workgroup owns ROWS queries of one head and
// walks over the keys up to its last query. No T×T buffer; memory is O(T).
const TENSOR = false;
const RESIDENT = false;
const BATCH = true;
const ROW_TILES = 1u; // TENSOR: operands of the rows, matrices of scores, and of what weighs the columns
const SCORE_TILES = 1u;
const WEIGHT_TILES = 1u;
//! if TENSOR
//! include attention_tensor_tiles
//! else
//! include attention_tiles
//! end
@group(0) @binding(0) var<storage, read> qkv: array<Element>; // [R,3C]
@group(0) @binding(1) var<storage, read_write> y: array<Element>; // [R,C]
@group(0) @binding(2) var<storage, read_write> lse: array<f32>; // [B,H,T]
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! if TENSOR
//! include attention_tensor_load FROM=qkv
//! include attention_tensor
//! else
//! include attention_load FROM=qkv
//! include attention_store TO=y
//! if RESIDENT
//! include attention_resident
//! else
//! include attention_rows
//! include attention_fill FROM=qkv
//! include attention_streamed
//! end
//! end

//! kernel attention_backward
// Two passes, each free of atomics: a workgroup owns ROWS queries and sums dq over keys; then one owns ROWS keys and sums dk
// and dv over queries. Scores are computed again from lse in both. The first also leaves delta = Σ dy·y for the second.
const TENSOR = false;
const RESIDENT = false;
const BATCH = false;
const KEYS = false; // which of the two passes
const ROW_TILES = 2u;
const SCORE_TILES = 2u;
//! if KEYS
const WEIGHT_TILES = 2u;
//! else
const WEIGHT_TILES = 1u;
//! end
//! if TENSOR
//! include attention_tensor_tiles
//! else
//! include attention_tiles
//! end
@group(0) @binding(0) var<storage, read> qkv: array<Element>; // [R,3C]
@group(0) @binding(1) var<storage, read> y: array<Element>; // [R,C]
@group(0) @binding(2) var<storage, read> lse: array<f32>; // [B,H,T]
@group(0) @binding(3) var<storage, read> dy: array<Element>; // [R,C]
@group(0) @binding(4) var<storage, read_write> delta: array<f32>; // [B,H,T]
@group(0) @binding(5) var<storage, read_write> dqkv: array<Element>; // [R,3C]
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! if TENSOR
//! include attention_tensor_load FROM=qkv
//! include attention_tensor_load FROM=y
//! include attention_tensor_load FROM=dy
//! include attention_tensor_backward
//! else
//! include attention_load FROM=qkv
//! include attention_load FROM=y
//! include attention_load FROM=dy
//! include attention_store TO=dqkv
//! if !RESIDENT
//! include attention_rows
//! include attention_fill FROM=qkv
//! include attention_fill FROM=dy
//! if KEYS
//! include attention_streamed_keys
//! else
//! include attention_streamed_queries
//! end
//! end
//! if RESIDENT && KEYS && !PAIRED
//! include attention_resident_keys
//! end
//! if RESIDENT && !KEYS && !PAIRED
//! include attention_resident_queries
//! end
//! if PAIRED && KEYS
//! include attention_paired_keys
//! end
//! if PAIRED && !KEYS
//! include attention_paired_queries
//! end
//! end
