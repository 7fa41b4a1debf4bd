// Two sweeps over the keys: the first finds lse, the second weighs the values by exp(score − lse), so that no sum in the units
// has to be scaled again.
//! if !EMULATE && !COOPERATIVE
@diagnostic(off, chromium.subgroup_matrix_uniformity) // a subgroup's place comes from a thread's: the same in all of it
//! end
@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let within = lane % SUBGROUP;
    let own = lane / SUBGROUP * FRAGMENT; // the subgroup's first row
    let row = own + within % FRAGMENT; // the thread's, for ordinary arithmetic
    let part = within / FRAGMENT; // its share of the columns: every PARTS-th eight
    let first_row = (groups.x - 1u - group.x) * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
    let stop = min(sizes.T, first_row + ROWS);
//! include attention_tensor_ahead SET=next_k
//! include attention_tensor_ahead SET=next_v
//! include attention_tensor_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=0u
//! include attention_tensor_fill FROM=qkv FIRST=head STEP=stride ROW=first_row COUNT=ROWS TO=0u
    workgroupBarrier();
//! include attention_tensor_rows X=x START=0u
    workgroupBarrier();
    var top = LOWEST;
    var total = 0.0;
    for (var key = 0u; key < stop; key += COLS) {
//! include attention_tensor_put SET=next_k TO=START_Y
        workgroupBarrier();
//! include attention_tensor_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key+COLS
//! include attention_tensor_scores X=x Y=START_Y TO=0u
        workgroupBarrier();
//! unroll e EIGHTS
        {
            let column = (part + {e}u * PARTS) * 8u;
            var a = four(row * STRIDE_S + column / 4u);
            var b = four(row * STRIDE_S + column / 4u + 1u);
            if (key + COLS > first_row + 1u) { // the diagonal goes through
                let seen = i32(first_row + row + 1u) - i32(key + column); // columns of the eight
                a = select(vec4f(LOWEST), a, vec4i(0, 1, 2, 3) < vec4i(seen));
                b = select(vec4f(LOWEST), b, vec4i(4, 5, 6, 7) < vec4i(seen));
            }
            let highest = max(a, b);
            let new_top = max(top, max(max(highest.x, highest.y), max(highest.z, highest.w)) * SCALE2);
            let powers = exp2(a * SCALE2 - new_top) + exp2(b * SCALE2 - new_top);
            total = total * exp2(top - new_top) + (powers.x + powers.y) + (powers.z + powers.w);
            top = new_top;
        }
//! end
    }
    workgroupBarrier();
    keep_four(row * STRIDE_S + part, vec4f(top, total, 0.0, 0.0));
    workgroupBarrier();
//! unroll p PARTS
    let other_{p} = four(row * STRIDE_S + {p}u);
    let new_top_{p} = max(top, other_{p}.x);
    top = new_top_{p};
//! end
    total = 0.0;
//! unroll p PARTS
    total += other_{p}.y * exp2(other_{p}.x - top);
//! end
    let powers_of_lse = top + log2(total);
    if (part == 0u && first_row + row < sizes.T) {
        lse[group.y * sizes.T + first_row + row] = powers_of_lse / LOG2E;
    }
//! include attention_tensor_sums SET=o
//! include attention_tensor_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=0u
//! include attention_tensor_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=0u
    for (var key = 0u; key < stop; key += COLS) {
        workgroupBarrier();
//! include attention_tensor_put SET=next_k TO=START_Y
//! include attention_tensor_put SET=next_v TO=START_Y+SIZE_Y
        workgroupBarrier();
//! include attention_tensor_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key+COLS
//! include attention_tensor_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key+COLS
//! include attention_tensor_scores X=x Y=START_Y TO=0u
        workgroupBarrier();
//! unroll e EIGHTS
        {
            let column = (part + {e}u * PARTS) * 8u;
            var a = exp2(min(four(row * STRIDE_S + column / 4u) * SCALE2 - powers_of_lse, vec4f(0.0)));
            var b = exp2(min(four(row * STRIDE_S + column / 4u + 1u) * SCALE2 - powers_of_lse, vec4f(0.0)));
            if (key + COLS > first_row + 1u) {
                let seen = i32(first_row + row + 1u) - i32(key + column);
                a = select(vec4f(0.0), a, vec4i(0, 1, 2, 3) < vec4i(seen));
                b = select(vec4f(0.0), b, vec4i(4, 5, 6, 7) < vec4i(seen));
            }
            keep(START_P + row * STRIDE_P + column / 8u, packed(a, b));
        }
//! end
        workgroupBarrier();
//! include attention_tensor_weigh SET=o P=START_P Y=START_Y+SIZE_Y
    }
//! include attention_tensor_out SET=o TO=y FIRST=out STEP=C
}
