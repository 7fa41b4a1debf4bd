// Sums and maxima over LANES neighbouring threads of a workgroup, by a fixed tree in workgroup memory: the same bits every
// time, on any subgroup size. Every thread of the workgroup must call, and every thread gets its group's result.
const THREADS = 256u;
const LANES = 256u;
var<workgroup> reduced: array<f32, THREADS>;

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
