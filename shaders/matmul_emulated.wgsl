// What the matrix units of a subgroup do, by ordinary arithmetic on the same memory at the same places. A thread holds every
// SUBGROUP-th number of a fragment of the result.
const HELD = FRAGMENT * FRAGMENT / SUBGROUP;
alias Result = array<f32, HELD>;

fn half_at(at: u32) -> f32 {
//! if WIDE
    return unpack2x16float(memory[at / 8u][at / 2u % 4u])[at % 2u];
//! else
    return f32(memory[at]);
//! end
}

fn emulated_product(sum: ptr<function, Result>, a: u32, b: u32, within: u32) {
    for (var i = 0u; i < HELD; i++) {
        let row = (within + i * SUBGROUP) / FRAGMENT;
        let column = (within + i * SUBGROUP) % FRAGMENT;
        for (var k = 0u; k < FRAGMENT; k++) {
//! if A_LINES_ALONG_K
            let left = half_at(a * (8u / UNIT) + row * STRIDE_A * 8u + k);
//! else
            let left = half_at(a * (8u / UNIT) + k * STRIDE_A * 8u + row);
//! end
//! if B_LINES_ALONG_K
            let right = half_at(b * (8u / UNIT) + column * STRIDE_B * 8u + k);
//! else
            let right = half_at(b * (8u / UNIT) + k * STRIDE_B * 8u + column);
//! end
            (*sum)[i] += left * right;
        }
    }
}

fn emulated_store(sum: Result, at: u32, within: u32) {
    var all = sum; // naga asks for a variable where an index is not constant
    for (var i = 0u; i < HELD; i++) {
        let row = (within + i * SUBGROUP) / FRAGMENT;
        let column = (within + i * SUBGROUP) % FRAGMENT;
        let place = at * (4u / UNIT_OUT) + row * STRIDE_OUT * 4u + column;
//! if WIDE
        memory[place / 4u][place % 4u] = bitcast<u32>(all[i]);
//! else
        results[place] = all[i];
//! end
    }
}
