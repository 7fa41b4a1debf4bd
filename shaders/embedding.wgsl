//! kernel embedding
//! include element
struct Sizes { B: u32, T: u32, V: u32, width: u32, first: u32 } // width: elements of a row of C channels; V rows of wte, from `first` on, are bound
@group(0) @binding(0) var<storage, read> tokens: array<i32>; // [B,T]
@group(0) @binding(1) var<storage, read> wte: array<Element>; // [V,C]
@group(0) @binding(2) var<storage, read> wpe: array<Element>; // [P,C]
@group(0) @binding(3) var<storage, read_write> x: array<Stored>; // [R,C]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn embedding(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.B * sizes.T * sizes.width) {
        let row = i / sizes.width;
        let c = i % sizes.width;
        let token = u32(tokens[row]) - sizes.first;
        if (token < sizes.V) {
            x[i] = Stored(wte[token * sizes.width + c] + wpe[(row % sizes.T) * sizes.width + c]);
        }
    }
}

//! kernel embedding_backward
//! include element
// A workgroup owns one row of dwte (a token v, of V from `first` on) or of dwpe (a position t), and WIDTH columns of it. For a token it looks
// through all tokens, 256 at a time: who matches sets a bit, and the bits are walked in order. No float atomics, and the
// same bits every time. SHARE groups of WIDTH threads each take every SHARE-th word of 32 bits.
const WIDTH = 32u;
const SHARE = 256u / WIDTH;
struct Sizes { B: u32, T: u32, V: u32, width: u32, first: u32, positions: u32 } // positions: T, or 0 where only tokens are owned
@group(0) @binding(0) var<storage, read> tokens: array<i32>; // [B,T]
@group(0) @binding(1) var<storage, read> dx: array<Stored>; // [R,C]
@group(0) @binding(2) var<storage, read_write> dwte: array<Element>; // [V,C]
@group(0) @binding(3) var<storage, read_write> dwpe: array<Element>; // [P,C]
@group(0) @binding(15) var<uniform> sizes: Sizes;
var<workgroup> matches: array<atomic<u32>, 8>;
var<workgroup> parts: array<Element, 256>;

@compute @workgroup_size(256)
fn embedding_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let columns = (sizes.width + WIDTH - 1u) / WIDTH;
    let id = group.y * groups.x + group.x;
    let owned = id / columns;
    let c = (id % columns) * WIDTH + lane % WIDTH;
    let share = lane / WIDTH;
    let inside = c < sizes.width && owned < sizes.V + sizes.positions;
    var sum = Element(0.0);
    if (owned < sizes.V) {
        for (var start = 0u; start < sizes.B * sizes.T; start += 256u) {
            if (lane < 8u) {
                atomicStore(&matches[lane], 0u);
            }
            workgroupBarrier();
            let r = start + lane;
            if (r < sizes.B * sizes.T && tokens[min(r, sizes.B * sizes.T - 1u)] == i32(owned + sizes.first)) {
                atomicOr(&matches[lane / 32u], 1u << (lane % 32u));
            }
            workgroupBarrier();
            for (var word = share; word < 8u; word += SHARE) {
                var left = atomicLoad(&matches[word]);
                while (left != 0u) {
                    let row = start + word * 32u + firstTrailingBit(left);
                    left &= left - 1u;
                    if (inside) {
                        sum += Element(dx[row * sizes.width + c]);
                    }
                }
            }
            workgroupBarrier();
        }
    } else if (inside) {
        let t = owned - sizes.V;
        for (var b = share; b < sizes.B; b += SHARE) {
            sum += Element(dx[(b * sizes.T + t) * sizes.width + c]);
        }
    }
    parts[lane] = sum;
    workgroupBarrier();
    if (share == 0u && inside) {
        for (var other = 1u; other < SHARE; other++) {
            sum += parts[other * WIDTH + lane];
        }
        if (owned < sizes.V) {
            dwte[owned * sizes.width + c] += sum;
        } else {
            dwpe[(owned - sizes.V) * sizes.width + c] += sum;
        }
    }
}

//! kernel embedding_at
//! include element
struct Sizes { B: u32, T: u32, V: u32, width: u32, first: u32 } // width: elements of a row of C channels; V rows of wte, from `first` on, are bound
@group(0) @binding(0) var<storage, read> tokens: array<i32>; // [B,T]
@group(0) @binding(1) var<storage, read> position: array<i32>; // [1]
@group(0) @binding(2) var<storage, read> wte: array<Element>; // [V,C]
@group(0) @binding(3) var<storage, read> wpe: array<Element>; // [P,C]
@group(0) @binding(4) var<storage, read_write> x: array<Stored>; // [R,C]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn embedding_at(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.B * sizes.T * sizes.width) {
        let row = i / sizes.width;
        let c = i % sizes.width;
        let place = u32(position[0]) + row % sizes.T;
        let token = u32(tokens[row]) - sizes.first;
        if (token < sizes.V) {
            x[i] = Stored(wte[token * sizes.width + c] + wpe[place * sizes.width + c]);
        }
    }
}
