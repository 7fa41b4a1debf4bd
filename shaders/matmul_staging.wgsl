// Tiles of a and of b on their way from buffers to workgroup memory. What a thread holds meanwhile (an item): a vector of eight
// halves, cut out as it lies; or, to be turned, eight rows of four halves, which become four lines of eight. Threads are laid
// over items so that a row is read in whole sectors of 32 bytes and eight neighbours store to all the banks.
//! if TURN_A || TURN_B
struct Rows { v0: vec4u, v1: vec4u, v2: vec4u, v3: vec4u } // two rows each

//! unroll c 4
fn line_{c}(rows: Rows) -> vec4u {
    let even = vec4u(rows.v0.{xyzw[c/2]}, rows.v1.{xyzw[c/2]}, rows.v2.{xyzw[c/2]}, rows.v3.{xyzw[c/2]});
    let odd = vec4u(rows.v0.{xyzw[2+c/2]}, rows.v1.{xyzw[2+c/2]}, rows.v2.{xyzw[2+c/2]}, rows.v3.{xyzw[2+c/2]});
//! if c % 2
    return (even >> vec4u(16u)) | (odd & vec4u(0xffff0000u));
//! else
    return (even & vec4u(0xffffu)) | (odd << vec4u(16u));
//! end
}

//! end
//! end
//! if TURN_A
const ITEMS_A = TILE_M * TILE_K / 32u;
alias StagedA = Rows;

fn place_a(i: u32) -> u32 {
    return i / WIDTH_A * 4u * STRIDE_A + i % WIDTH_A;
}

fn load_a(i: u32, first: u32, k: u32, stop: u32) -> StagedA {
    var value = StagedA();
    let row = k + i % WIDTH_A * 8u;
    let column = first + i / WIDTH_A * 4u;
    if (i < ITEMS_A && column < {M}) {
        let at = (row * {A_LINE} + column) / 4u;
        let next = {A_LINE} / 4u;
        if (row + 8u <= stop) { // loads that nothing stands between
//! unroll r 4
            value.v{r} = vec4u({A}[at + {2*r}u * next], {A}[at + {2*r+1}u * next]);
//! end
        } else {
//! unroll r 4
            if (row + {2*r}u < stop) { value.v{r} = vec4u({A}[at + {2*r}u * next], 0u, 0u); }
            if (row + {2*r+1}u < stop) { value.v{r} = vec4u(value.v{r}.xy, {A}[at + {2*r+1}u * next]); }
//! end
        }
    }
    return value;
}

fn keep_a(at: u32, value: StagedA) {
//! unroll c 4
    keep(at + {c}u * STRIDE_A, line_{c}(value));
//! end
}
//! else
const ITEMS_A = LINES_A * WIDTH_A;
alias StagedA = vec4u;

fn place_a(i: u32) -> u32 {
    return i / WIDTH_A * STRIDE_A + i % WIDTH_A;
}

fn load_a(i: u32, first: u32, k: u32, stop: u32) -> StagedA {
//! if A_ALONG_K
    let row = first + i / WIDTH_A;
    let column = k + i % WIDTH_A * 8u;
    let inside = row < {M} && column < stop;
    let at = (row * {A_LINE} + column) / 8u;
//! else
    let row = k + i / WIDTH_A;
    let column = first + i % WIDTH_A * 8u;
    let inside = row < stop && column < {M};
    let at = (row * {A_LINE} + column) / 8u;
//! end
    var value = vec4u();
    if (inside) { value = {A}[at]; }
    return value;
}

fn keep_a(at: u32, value: StagedA) {
    keep(at, value);
}
//! end
const LOADS_A = (ITEMS_A + THREADS - 1u) / THREADS;

//! if TURN_B
const ITEMS_B = TILE_N * TILE_K / 32u;
const PAIRS_K = TILE_K / 8u; // of rows' fours
alias StagedB = Rows;

// Of an item: which eight rows, and which four numbers along k. Two neighbours share a row, then come four other rows.
fn rows_of_b(i: u32) -> u32 {
    return i / 2u % 4u + i / (8u * PAIRS_K) * 4u;
}

fn four_of_b(i: u32) -> u32 {
    return i % 2u + i / 8u % PAIRS_K * 2u;
}

fn place_b(i: u32) -> u32 {
    return START_B + four_of_b(i) * 4u * STRIDE_B + rows_of_b(i);
}

fn load_b(i: u32, first: u32, k: u32, stop: u32) -> StagedB {
    var value = StagedB();
    let row = first + rows_of_b(i) * 8u;
    let column = k + four_of_b(i) * 4u;
    if (i < ITEMS_B && column < stop) {
        let at = (row * {K} + column) / 4u;
        let next = {K} / 4u;
        if (row + 8u <= {N}) { // loads that nothing stands between
//! unroll r 4
            value.v{r} = vec4u({B}[at + {2*r}u * next], {B}[at + {2*r+1}u * next]);
//! end
        } else {
//! unroll r 4
            if (row + {2*r}u < {N}) { value.v{r} = vec4u({B}[at + {2*r}u * next], 0u, 0u); }
            if (row + {2*r+1}u < {N}) { value.v{r} = vec4u(value.v{r}.xy, {B}[at + {2*r+1}u * next]); }
//! end
        }
    }
    return value;
}

fn keep_b(at: u32, value: StagedB) {
//! unroll c 4
    keep(at + {c}u * STRIDE_B, line_{c}(value));
//! end
}
//! else
const ITEMS_B = LINES_B * WIDTH_B;
alias StagedB = vec4u;

fn place_b(i: u32) -> u32 {
    return START_B + i / WIDTH_B * STRIDE_B + i % WIDTH_B;
}

fn load_b(i: u32, first: u32, k: u32, stop: u32) -> StagedB {
//! if B_ALONG_K
    let row = first + i / WIDTH_B;
    let column = k + i % WIDTH_B * 8u;
    let inside = row < {N} && column < stop;
    let at = (row * {K} + column) / 8u;
//! else
    let row = k + i / WIDTH_B;
    let column = first + i % WIDTH_B * 8u;
    let inside = row < stop && column < {N};
    let at = (row * {N} + column) / 8u;
//! end
    var value = vec4u();
    if (inside) { value = {B}[at]; }
    return value;
}

fn keep_b(at: u32, value: StagedB) {
    keep(at, value);
}
//! end
const LOADS_B = (ITEMS_B + THREADS - 1u) / THREADS;
