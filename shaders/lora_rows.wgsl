// Sums of few ranks over a long row of {X}. A workgroup has ROWS rows; a thread has SHARE of them, four ranks, and every
// LANES-th number of the row. What LANES threads found is added up in one fixed tree. Every thread must call row_sums.
// With it goes weights_of(i, quad): what four ranks multiply number i by.
const ROWS = 8u;
const SHARE = 2u;
const LANES = 64u;
const THREADS = ROWS / SHARE * QUADS * LANES;
var<workgroup> parts: array<vec4f, SHARE * THREADS>;

fn row_sums(first_row: u32, row_length: u32, first: u32, depth: u32, lane: u32) {
    let at = lane % LANES;
    let quad = lane / LANES % QUADS;
    let row = first_row + lane / (LANES * QUADS) * SHARE;
//! unroll s SHARE
    var sum{s} = vec4f();
    let start{s} = min(row + {s}u, sizes.R - 1u) * row_length + first;
//! end
    for (var i = at; i < depth; i += LANES) {
        let weights = weights_of(i, quad);
//! unroll s SHARE
        sum{s} += f32({X}[start{s} + i]) * weights;
//! end
    }
//! unroll s SHARE
    parts[{s}u * THREADS + lane] = sum{s};
//! end
    workgroupBarrier();
    for (var span = LANES / 2u; span > 0u; span /= 2u) {
        if (at < span) {
//! unroll s SHARE
            parts[{s}u * THREADS + lane] += parts[{s}u * THREADS + lane + span];
//! end
        }
        workgroupBarrier();
    }
}

// Where `parts` has four ranks of the workgroup's row `row`, after row_sums.
fn part_of(row: u32, quad: u32) -> u32 {
    return row % SHARE * THREADS + (row / SHARE * QUADS + quad) * LANES;
}
