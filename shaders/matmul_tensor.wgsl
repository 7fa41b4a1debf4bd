// The product by matrix units: a subgroup owns FRAGMENTS_M × FRAGMENTS_N square fragments of the result. Tiles of a and b go
// through workgroup memory, eight halves a vector (matmul_staging.wgsl). A row there is PAD vectors longer than its numbers, so
// that neighbouring rows start in other banks. With two BUFFERS the next tile is written while this one is multiplied. Results
// leave through the same memory. Needs rows of a and of b that start at multiples of eight numbers; edges are zeros.
const FRAGMENT = 16u;
const FRAGMENTS_M = 4u;
const FRAGMENTS_N = 4u;
const SUBGROUPS_M = 2u;
const SUBGROUPS_N = 2u;
const TILE_K = 32u;
const BUFFERS = 1u;
const PAD = 1u;
const SUBGROUP = 32u;
const WIDE = true; // workgroup memory is made of vectors; else of halves, which some compilers ask for
const COOPERATIVE = false; // naga's names for the same things
const EMULATE = false; // ordinary arithmetic in place of the matrix units: for devices that have none, to check the rest
const SPAN_M = FRAGMENT * FRAGMENTS_M; // rows of a subgroup
const SPAN_N = FRAGMENT * FRAGMENTS_N;
const TILE_M = SPAN_M * SUBGROUPS_M;
const TILE_N = SPAN_N * SUBGROUPS_N;
const SUBGROUPS = SUBGROUPS_M * SUBGROUPS_N;
const THREADS = SUBGROUP * SUBGROUPS;
const STEPS = TILE_K / FRAGMENT;
const A_LINES_ALONG_K = A_ALONG_K || TURN_A; // in workgroup memory
const B_LINES_ALONG_K = B_ALONG_K && !TURN_B;
//! if A_LINES_ALONG_K
const LINES_A = TILE_M;
const WIDTH_A = TILE_K / 8u; // vectors in a line
//! else
const LINES_A = TILE_K;
const WIDTH_A = TILE_M / 8u;
//! end
//! if B_LINES_ALONG_K
const LINES_B = TILE_N;
const WIDTH_B = TILE_K / 8u;
//! else
const LINES_B = TILE_K;
const WIDTH_B = TILE_N / 8u;
//! end
const STRIDE_A = WIDTH_A + PAD;
const STRIDE_B = WIDTH_B + PAD;
const START_B = LINES_A * STRIDE_A;
const BUFFER = START_B + LINES_B * STRIDE_B;
const WIDTH_OUT = SPAN_N / 4u; // vectors of four sums in a line of a subgroup's results
const STRIDE_OUT = WIDTH_OUT + 1u;
const RESULTS = SUBGROUPS * FRAGMENT * STRIDE_OUT; // one row of fragments of each subgroup
//! if WIDE
const UNIT = 1u; // elements of memory in eight halves
const UNIT_OUT = 1u; // elements of results in four sums
var<workgroup> memory: array<vec4u, max(BUFFERS * BUFFER, RESULTS)>;
//! else
const UNIT = 8u;
const UNIT_OUT = 4u;
var<workgroup> memory: array<f16, 8u * BUFFERS * BUFFER>;
var<workgroup> results: array<f32, 4u * RESULTS>;
//! end

fn keep(at: u32, value: vec4u) {
//! if WIDE
    memory[at] = value;
//! else
//! unroll c 4
    let pair_{c} = vec2<f16>(unpack2x16float(value.{xyzw[c]})); // naga cannot bitcast to vec2<f16>
    memory[at * 8u + {2*c}u] = pair_{c}.x;
    memory[at * 8u + {2*c+1}u] = pair_{c}.y;
//! end
//! end
}

//! include matmul_staging
//! if COLUMN_SUMS
const QUADS_N = TILE_N / 4u; // of columns; every thread adds up one of them, down a share of the rows
const SHARES = THREADS / QUADS_N;
fn keep_result(at: u32, value: vec4f) {
//! if WIDE
    memory[at] = bitcast<vec4u>(value);
//! else
//! unroll c 4
    results[at * 4u + {c}u] = value.{xyzw[c]};
//! end
//! end
}

// Four neighbouring numbers of a tile.
fn four(at: u32, which: u32) -> vec4f {
//! if WIDE
    let pairs = select(memory[at].xy, memory[at].zw, which == 1u);
    return vec4f(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
//! else
    let first = at * 8u + which * 4u;
    return vec4f(f32(memory[first]), f32(memory[first + 1u]), f32(memory[first + 2u]), f32(memory[first + 3u]));
//! end
}
//! end

fn result_at(at: u32) -> vec4f {
//! if WIDE
    return bitcast<vec4f>(memory[at]);
//! else
    return vec4f(results[at * 4u], results[at * 4u + 1u], results[at * 4u + 2u], results[at * 4u + 3u]);
//! end
}

//! if EMULATE
//! include matmul_emulated
//! end
//! if !EMULATE && !COOPERATIVE
alias Left = subgroup_matrix_left<f16, FRAGMENT, FRAGMENT>;
alias Right = subgroup_matrix_right<f16, FRAGMENT, FRAGMENT>;
alias Result = subgroup_matrix_result<f32, FRAGMENT, FRAGMENT>;
@diagnostic(off, chromium.subgroup_matrix_uniformity) // a subgroup's place comes from a thread's: the same in all of it
//! end
fn product(first_m: u32, first_n: u32, start: u32, stop: u32, lane: u32) {
    let subgroup = lane / SUBGROUP;
    let within = lane % SUBGROUP;
    let own_m = subgroup / SUBGROUPS_N * SPAN_M;
    let own_n = subgroup % SUBGROUPS_N * SPAN_N;
//! unroll i FRAGMENTS_M
//! unroll j FRAGMENTS_N
//! if COOPERATIVE
    var sum_{i}{j} = coop_mat{FRAGMENT}x{FRAGMENT}<f32, C>();
//! else
    var sum_{i}{j}: Result;
//! end
//! end
//! end
//! if A_LINES_ALONG_K
    let from_a = own_m * STRIDE_A;
    const NEXT_A = FRAGMENT * STRIDE_A; // to the next fragment along m
    const NEXT_STEP_A = FRAGMENT / 8u;
//! else
    let from_a = own_m / 8u;
    const NEXT_A = FRAGMENT / 8u;
    const NEXT_STEP_A = FRAGMENT * STRIDE_A;
//! end
//! if B_LINES_ALONG_K
    let from_b = START_B + own_n * STRIDE_B;
    const NEXT_B = FRAGMENT * STRIDE_B;
    const NEXT_STEP_B = FRAGMENT / 8u;
//! else
    let from_b = START_B + own_n / 8u;
    const NEXT_B = FRAGMENT / 8u;
    const NEXT_STEP_B = FRAGMENT * STRIDE_B;
//! end
//! unroll s LOADS_A
    let item_a{s} = lane + {s}u * THREADS;
    let place_a{s} = place_a(item_a{s});
    var staged_a{s} = load_a(item_a{s}, first_m, start, stop);
//! end
//! unroll s LOADS_B
    let item_b{s} = lane + {s}u * THREADS;
    let place_b{s} = place_b(item_b{s});
    var staged_b{s} = load_b(item_b{s}, first_n, start, stop);
//! end
    var buffer = 0u;
    for (var k = start; k < stop; k += TILE_K) {
//! if BUFFERS == 1
        workgroupBarrier();
//! end
//! unroll s LOADS_A
//! if ITEMS_A % THREADS
        if (item_a{s} < ITEMS_A) { keep_a(buffer + place_a{s}, staged_a{s}); }
//! else
        keep_a(buffer + place_a{s}, staged_a{s});
//! end
//! end
//! unroll s LOADS_B
//! if ITEMS_B % THREADS
        if (item_b{s} < ITEMS_B) { keep_b(buffer + place_b{s}, staged_b{s}); }
//! else
        keep_b(buffer + place_b{s}, staged_b{s});
//! end
//! end
        workgroupBarrier();
        if (k + TILE_K < stop) {
//! unroll s LOADS_A
            staged_a{s} = load_a(item_a{s}, first_m, k + TILE_K, stop);
//! end
//! unroll s LOADS_B
            staged_b{s} = load_b(item_b{s}, first_n, k + TILE_K, stop);
//! end
        }
//! unroll s STEPS
        {
//! unroll i FRAGMENTS_M
            let at_a{i} = (buffer + from_a + {s}u * NEXT_STEP_A + {i}u * NEXT_A) * UNIT;
//! if EMULATE
            let a{i} = at_a{i};
//! end
//! if COOPERATIVE && A_LINES_ALONG_K
            let a{i} = coopLoadT<coop_mat{FRAGMENT}x{FRAGMENT}<f16, A>>(&memory[at_a{i}], STRIDE_A * UNIT);
//! end
//! if COOPERATIVE && !A_LINES_ALONG_K
            let a{i} = coopLoad<coop_mat{FRAGMENT}x{FRAGMENT}<f16, A>>(&memory[at_a{i}], STRIDE_A * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE && A_LINES_ALONG_K
            let a{i} = subgroupMatrixLoad<Left, row_major>(&memory, at_a{i}, STRIDE_A * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE && !A_LINES_ALONG_K
            let a{i} = subgroupMatrixLoad<Left, col_major>(&memory, at_a{i}, STRIDE_A * UNIT);
//! end
//! end
//! unroll j FRAGMENTS_N
            let at_b{j} = (buffer + from_b + {s}u * NEXT_STEP_B + {j}u * NEXT_B) * UNIT;
//! if EMULATE
            let b{j} = at_b{j};
//! end
//! if COOPERATIVE && B_LINES_ALONG_K
            let b{j} = coopLoad<coop_mat{FRAGMENT}x{FRAGMENT}<f16, B>>(&memory[at_b{j}], STRIDE_B * UNIT);
//! end
//! if COOPERATIVE && !B_LINES_ALONG_K
            let b{j} = coopLoadT<coop_mat{FRAGMENT}x{FRAGMENT}<f16, B>>(&memory[at_b{j}], STRIDE_B * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE && B_LINES_ALONG_K
            let b{j} = subgroupMatrixLoad<Right, col_major>(&memory, at_b{j}, STRIDE_B * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE && !B_LINES_ALONG_K
            let b{j} = subgroupMatrixLoad<Right, row_major>(&memory, at_b{j}, STRIDE_B * UNIT);
//! end
//! unroll i FRAGMENTS_M
//! if EMULATE
            emulated_product(&sum_{i}{j}, a{i}, b{j}, within);
//! end
//! if COOPERATIVE
            sum_{i}{j} = coopMultiplyAdd(a{i}, b{j}, sum_{i}{j});
//! end
//! if !EMULATE && !COOPERATIVE
            sum_{i}{j} = subgroupMatrixMultiplyAccumulate(a{i}, b{j}, sum_{i}{j});
//! end
//! end
//! end
        }
//! end
//! if COLUMN_SUMS
        if (first_m == 0u && lane < SHARES * QUADS_N) {
            for (var i = lane / QUADS_N; i < TILE_K; i += SHARES) {
                column_sum += four(buffer + START_B + i * STRIDE_B + lane % QUADS_N / 2u, lane % 2u);
            }
        }
//! end
//! if BUFFERS == 2
        buffer = BUFFER - buffer;
//! end
    }
//! if COLUMN_SUMS
    if (first_m == 0u) {
        workgroupBarrier();
        keep_result(lane, column_sum);
        workgroupBarrier();
        if (lane < QUADS_N) {
            for (var share = 1u; share < SHARES; share++) { column_sum += result_at(share * QUADS_N + lane); }
        }
    }
//! end
    let own = subgroup * FRAGMENT * STRIDE_OUT;
//! unroll i FRAGMENTS_M
    workgroupBarrier();
//! unroll j FRAGMENTS_N
//! if EMULATE
    emulated_store(sum_{i}{j}, (own + {j}u * FRAGMENT / 4u) * UNIT_OUT, within);
//! end
//! if COOPERATIVE
    coopStoreT(sum_{i}{j}, &results[(own + {j}u * FRAGMENT / 4u) * UNIT_OUT], STRIDE_OUT * UNIT_OUT);
//! end
//! if !EMULATE && !COOPERATIVE && WIDE
    subgroupMatrixStore<row_major>(&memory, own + {j}u * FRAGMENT / 4u, sum_{i}{j}, STRIDE_OUT);
//! end
//! if !EMULATE && !COOPERATIVE && !WIDE
    subgroupMatrixStore<row_major>(&results, (own + {j}u * FRAGMENT / 4u) * UNIT_OUT, sum_{i}{j}, STRIDE_OUT * UNIT_OUT);
//! end
//! end
    workgroupBarrier();
    for (var item = within; item < FRAGMENT * WIDTH_OUT; item += SUBGROUP) {
        let row = item / WIDTH_OUT;
        let column = item % WIDTH_OUT;
        store_out(first_m + own_m + {i}u * FRAGMENT + row, first_n + own_n + column * 4u, result_at(own + row * STRIDE_OUT + column));
    }
//! end
}
