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

//! kernel attention_cached
// One text: keys (a column a position) and values (a row) of all positions stand in a cache. A first dispatch stores the T new
// ones there; then a workgroup takes one row of one head: a thread scores every THREADS-th key, and after the softmax SHARES
// threads share the keys of each element of the result. Every sum has one order, which does not depend on T.
//! include element
const MOST = 2048u; // positions
const WIDTH = 8u; // elements of a head
//! include reduce
const SHARES = THREADS / WIDTH;
struct Sizes { T: u32, H: u32, P: u32, scale: f32, count: u32 } // count: elements of k, and of v, in all new rows
@group(0) @binding(0) var<storage, read> qkv: array<Stored>; // [T,3C]
@group(0) @binding(1) var<storage, read> position: array<i32>; // [1]
@group(0) @binding(2) var<storage, read_write> keys: array<f32>; // [C,P]
@group(0) @binding(3) var<storage, read_write> values: array<Element>; // [P,C]
@group(0) @binding(4) var<storage, read_write> y: array<Stored>; // [T,C]
@group(0) @binding(15) var<uniform> sizes: Sizes;
var<workgroup> query: array<Element, WIDTH>;
var<workgroup> weights: array<f32, MOST>;
var<workgroup> parts: array<Element, THREADS>;

@compute @workgroup_size(THREADS)
fn attention_cached(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let row = group.x;
    let width = sizes.H * WIDTH;
    let head = group.y * WIDTH;
    let seen = min(u32(position[0]) + row + 1u, min(sizes.P, MOST));
    if (lane < WIDTH) {
        query[lane] = Element(qkv[row * 3u * width + head + lane]) * sizes.scale;
    }
    workgroupBarrier();
    var top = -3.4e38;
    for (var j = lane; j < seen; j += THREADS) {
        var score = 0.0;
        for (var e = 0u; e < WIDTH; e++) {
            let q = query[e];
//! if VECTORS
            let at = 4u * (head + e) * sizes.P + j;
            score += q.x * keys[at] + q.y * keys[at + sizes.P] + q.z * keys[at + 2u * sizes.P] + q.w * keys[at + 3u * sizes.P];
//! else
            score += q * keys[(head + e) * sizes.P + j];
//! end
        }
        weights[j] = score;
        top = max(top, score);
    }
    top = reduce_max(top, lane);
    var total = 0.0;
    for (var j = lane; j < seen; j += THREADS) {
        let weight = exp(weights[j] - top);
        weights[j] = weight;
        total += weight;
    }
    total = reduce_sum(total, lane);
    let share = lane / WIDTH;
    let e = head + lane % WIDTH;
    var sum = Element(0.0);
    if (share < SHARES) {
        for (var j = share; j < seen; j += SHARES) {
            sum += weights[j] * values[j * width + e];
        }
    }
    parts[lane] = sum;
    workgroupBarrier();
    if (lane < WIDTH) {
        for (var other = 1u; other < SHARES; other++) {
            sum += parts[other * WIDTH + lane];
        }
        y[row * width + e] = Stored(sum / total);
    }
}

@compute @workgroup_size(256)
fn attention_cached_store(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let width = sizes.H * WIDTH;
        let row = i / width;
        let c = i % width;
        let place = u32(position[0]) + row;
        let key = Element(qkv[(3u * row + 1u) * width + c]);
//! if VECTORS
//! unroll e 4
        keys[(4u * c + {e}u) * sizes.P + place] = key.{xyzw[e]};
//! end
//! else
        keys[c * sizes.P + place] = key;
//! end
        values[place * width + c] = Element(qkv[(3u * row + 2u) * width + c]);
    }
}
