//! kernel dpo
// One workgroup takes pair after pair: a step has a few dozen at most.
//! include reduce
struct Sizes { S: u32, T: u32 }
@group(0) @binding(0) var<storage, read> losses: array<f32>; // [2S,T]
@group(0) @binding(1) var<storage, read> reference: array<f32>; // [2S]
@group(0) @binding(2) var<storage, read> beta: array<f32>; // [1]
@group(0) @binding(3) var<storage, read_write> margins: array<f32>; // [S]
@group(0) @binding(4) var<storage, read_write> loss: array<f32>; // [2]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(THREADS)
fn dpo(@builtin(local_invocation_index) lane: u32) {
    var total = 0.0;
    for (var pair = 0u; pair < sizes.S; pair++) {
        var chosen = 0.0;
        var rejected = 0.0;
        for (var t = lane; t < sizes.T; t += THREADS) {
            chosen += losses[pair * sizes.T + t];
            rejected += losses[(sizes.S + pair) * sizes.T + t];
        }
        let chosen_gain = -reduce_sum(chosen, lane) - reference[pair];
        let rejected_gain = -reduce_sum(rejected, lane) - reference[sizes.S + pair];
        let margin = beta[0] * (chosen_gain - rejected_gain);
        total += max(0.0, -margin) + log(1.0 + exp(-abs(margin)));
        if (lane == 0u) {
            margins[pair] = margin;
        }
    }
    if (lane == 0u) {
        loss[0] = total / f32(sizes.S);
        loss[1] = f32(sizes.S);
    }
}

//! kernel dpo_backward
struct Sizes { S: u32, T: u32 }
@group(0) @binding(0) var<storage, read> margins: array<f32>; // [S]
@group(0) @binding(1) var<storage, read> beta: array<f32>; // [1]
@group(0) @binding(2) var<storage, read> dloss: array<f32>; // [1]
@group(0) @binding(3) var<storage, read_write> dlosses: array<f32>; // [2S,T]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn dpo_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < 2u * sizes.S * sizes.T) {
        let sequence = i / sizes.T;
        let margin = margins[sequence % sizes.S];
        // sigmoid(-margin) with an exponent that never grows large
        let small = exp(-abs(margin));
        let unsure = select(1.0, small, margin > 0.0) / (1.0 + small);
        let change = dloss[0] * beta[0] * unsure / f32(sizes.S);
        dlosses[i] = select(-change, change, sequence < sizes.S);
    }
}
