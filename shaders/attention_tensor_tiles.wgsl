// Attention by matrix units: a subgroup owns FRAGMENT rows against COLS columns. Operands are halves in workgroup memory, eight
// a vector; scores leave the units for `floats`, are worked on there by ordinary arithmetic, and return as halves. The rows'
// own operands are loaded into registers once, and their memory is then used again (unless KEEP). Rows of memory are PAD
// vectors longer than their numbers: neighbours start in other banks.
const D = 64u;
const ROWS = 64u;
const COLS = 64u;
const FRAGMENT = 16u;
const SUBGROUP = 32u;
const PAD = 1u;
const WIDE = true; // workgroup memory is made of vectors; else of numbers, which some compilers ask for
const COOPERATIVE = false; // naga's names for the same things
const EMULATE = false; // ordinary arithmetic in place of the matrix units: for devices that have none, to check the rest
const KEEP = EMULATE;
const THREADS = ROWS / FRAGMENT * SUBGROUP;
const PARTS = SUBGROUP / FRAGMENT; // threads that share a row of scores
const DEPTHS = D / FRAGMENT; // fragments of a head's width
const SPANS = COLS / FRAGMENT; // and of the columns
const EIGHTS = COLS / 8u / PARTS; // vectors of eight scores a thread works on
const VECTORS_D = D / 8u;
const STRIDE_D = D / 8u + PAD;
const STRIDE_P = COLS / 8u + PAD;
const STRIDE_S = COLS / 4u + 1u; // of four floats
const STRIDE_O = D / 4u + 1u;
const LOADS_Y = (COLS * VECTORS_D + THREADS - 1u) / THREADS;
const SIZE_X = ROWS * STRIDE_D;
const SIZE_Y = COLS * STRIDE_D;
const SIZE_P = ROWS * STRIDE_P;
const SIZE_S = ROWS * STRIDE_S;
//! if KEEP
const START_Y = ROW_TILES * SIZE_X;
//! else
const START_Y = 0u;
//! end
const START_P = START_Y + 2u * SIZE_Y;
const SCALE = inverseSqrt(f32(D));
const LOG2E = 1.4426950408889634;
const SCALE2 = SCALE * LOG2E; // scores as powers of two
const LOWEST = -3.4e38;
struct Sizes { B: u32, T: u32, H: u32 }
alias Element = vec4u; // eight halves
const HALVES = max(START_P + WEIGHT_TILES * SIZE_P, ROW_TILES * SIZE_X);
const FLOATS = max(SCORE_TILES * SIZE_S, ROWS * STRIDE_O);
//! if WIDE
const UNIT = 1u; // elements of halves in eight halves
const UNIT_S = 1u; // elements of floats in four floats
var<workgroup> halves: array<vec4u, HALVES>;
var<workgroup> floats: array<vec4f, FLOATS>;
//! else
const UNIT = 8u;
const UNIT_S = 4u;
var<workgroup> halves: array<f16, 8u * HALVES>;
var<workgroup> floats: array<f32, 4u * FLOATS>;
//! end

fn keep(at: u32, value: vec4u) {
//! if WIDE
    halves[at] = value;
//! else
//! unroll c 4
    let pair_{c} = vec2<f16>(unpack2x16float(value.{xyzw[c]})); // naga cannot bitcast to vec2<f16>
    halves[at * 8u + {2*c}u] = pair_{c}.x;
    halves[at * 8u + {2*c+1}u] = pair_{c}.y;
//! end
//! end
}

fn four(at: u32) -> vec4f {
//! if WIDE
    return floats[at];
//! else
    return vec4f(floats[at * 4u], floats[at * 4u + 1u], floats[at * 4u + 2u], floats[at * 4u + 3u]);
//! end
}

fn keep_four(at: u32, value: vec4f) {
//! if WIDE
    floats[at] = value;
//! else
//! unroll c 4
    floats[at * 4u + {c}u] = value.{xyzw[c]};
//! end
//! end
}

fn packed(a: vec4f, b: vec4f) -> vec4u {
    return vec4u(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
//! if EMULATE

// What the matrix units of a subgroup do, by ordinary arithmetic on the same memory at the same places. A thread holds every
// SUBGROUP-th number of a fragment of the result.
const HELD = FRAGMENT * FRAGMENT / SUBGROUP;
alias Result = array<f32, HELD>;

fn half_at(at: u32) -> f32 {
//! if WIDE
    return unpack2x16float(halves[at / 8u][at / 2u % 4u])[at % 2u];
//! else
    return f32(halves[at]);
//! end
}

fn emulated_product(sum: ptr<function, Result>, a: u32, stride_a: u32, b: u32, stride_b: u32, along_k: bool, within: u32) {
    for (var i = 0u; i < HELD; i++) {
        let row = (within + i * SUBGROUP) / FRAGMENT;
        let column = (within + i * SUBGROUP) % FRAGMENT;
        for (var k = 0u; k < FRAGMENT; k++) {
            let right = select(k * stride_b * 8u + column, column * stride_b * 8u + k, along_k);
            (*sum)[i] += half_at((a + row * stride_a) * 8u + k) * half_at(b * 8u + right);
        }
    }
}

fn emulated_store(sum: Result, at: u32, stride: u32, within: u32) {
    var all = sum; // naga asks for a variable where an index is not constant
    for (var i = 0u; i < HELD; i++) {
        let row = (within + i * SUBGROUP) / FRAGMENT;
        let column = (within + i * SUBGROUP) % FRAGMENT;
        let place = (at + row * stride) * 4u + column;
//! if WIDE
        floats[place / 4u][place % 4u] = all[i];
//! else
        floats[place] = all[i];
//! end
    }
}
//! end
//! if !EMULATE && !COOPERATIVE
alias Left = subgroup_matrix_left<f16, FRAGMENT, FRAGMENT>;
alias Right = subgroup_matrix_right<f16, FRAGMENT, FRAGMENT>;
alias Result = subgroup_matrix_result<f32, FRAGMENT, FRAGMENT>;
//! end
