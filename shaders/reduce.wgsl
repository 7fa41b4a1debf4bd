// Sums and maxima over LANES neighbouring threads of a workgroup, each in one fixed order: the same bits every time on a
// device. Every thread of the workgroup must call, and every thread gets its group's result. With SUBGROUPS first over the
// threads of a subgroup (any size from 4 to 128; they are neighbours, which the start-up self-test would not pass without),
// then over the subgroups; without by a tree in workgroup memory.
const SUBGROUPS = false;
const THREADS = 256u;
const LANES = 256u;
var<workgroup> reduced: array<f32, THREADS>;
//! if SUBGROUPS

fn reduce_sum(value: f32, lane: u32) -> f32 {
    workgroupBarrier(); // a reader of the call before may still be here
    let size = subgroupAdd(1u);
    var sum = value;
//! unroll e 7
    sum += select(0.0, subgroupShuffleXor(sum, {2**e}u), {2**e}u < size && {2**e}u < LANES);
//! end
    let wide = min(size, LANES);
    if (lane % wide == 0u) {
        reduced[lane / wide] = sum;
    }
    workgroupBarrier();
    let first = lane / LANES * (LANES / wide);
    var total = reduced[first];
    for (var i = 1u; i < LANES / wide; i++) {
        total += reduced[first + i];
    }
    return total;
}

fn reduce_max(value: f32, lane: u32) -> f32 {
    workgroupBarrier();
    let size = subgroupAdd(1u);
    var top = value;
//! unroll e 7
    top = select(top, max(top, subgroupShuffleXor(top, {2**e}u)), {2**e}u < size && {2**e}u < LANES);
//! end
    let wide = min(size, LANES);
    if (lane % wide == 0u) {
        reduced[lane / wide] = top;
    }
    workgroupBarrier();
    let first = lane / LANES * (LANES / wide);
    var highest = reduced[first];
    for (var i = 1u; i < LANES / wide; i++) {
        highest = max(highest, reduced[first + i]);
    }
    return highest;
}
//! else

fn reduce_sum(value: f32, lane: u32) -> f32 {
    workgroupBarrier(); // a reader of the call before may still be here
    reduced[lane] = value;
    workgroupBarrier();
    for (var span = LANES / 2u; span > 0u; span /= 2u) {
        if (lane % LANES < span) {
            reduced[lane] += reduced[lane + span];
        }
        workgroupBarrier();
    }
    return reduced[lane - lane % LANES];
}

fn reduce_max(value: f32, lane: u32) -> f32 {
    workgroupBarrier();
    reduced[lane] = value;
    workgroupBarrier();
    for (var span = LANES / 2u; span > 0u; span /= 2u) {
        if (lane % LANES < span) {
            reduced[lane] = max(reduced[lane], reduced[lane + span]);
        }
        workgroupBarrier();
    }
    return reduced[lane - lane % LANES];
}
//! end
