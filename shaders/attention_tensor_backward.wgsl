// Either pass. Queries: rows are q and dy, columns keys and values. Keys: rows are keys and values, columns q and dy; lse and
// delta then belong to columns, and lie in `stats`.
//! if KEYS
var<workgroup> stats: array<vec4f, COLS / 2u>; // lse (as a power of two) of four columns each, then delta
//! end
//! if !EMULATE && !COOPERATIVE
@diagnostic(off, chromium.subgroup_matrix_uniformity) // a subgroup's place comes from a thread's: the same in all of it
//! end
@compute @workgroup_size(THREADS)
//! if KEYS
fn attention_backward_keys(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.x * ROWS; // the longest first
//! else
fn attention_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let first_row = (groups.x - 1u - group.x) * ROWS; // the longest first
//! end
    let within = lane % SUBGROUP;
    let own = lane / SUBGROUP * FRAGMENT; // the subgroup's first row
    let row = own + within % FRAGMENT; // the thread's, for ordinary arithmetic
    let part = within / FRAGMENT; // its share of the columns: every PARTS-th eight
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! include attention_tensor_ahead SET=next_s
//! include attention_tensor_ahead SET=next_g
//! if KEYS
    let start = first_row / COLS * COLS;
    let stop = sizes.T;
//! include attention_tensor_fetch SET=next_s FROM=qkv FIRST=head STEP=stride ROW=start
//! include attention_tensor_fetch SET=next_g FROM=dy FIRST=out STEP=C ROW=start
//! include attention_tensor_fill FROM=qkv FIRST=head+C STEP=stride ROW=first_row COUNT=ROWS TO=0u
//! include attention_tensor_fill FROM=qkv FIRST=head+2u*C STEP=stride ROW=first_row COUNT=ROWS TO=SIZE_X
//! else
    let start = 0u;
    let stop = min(sizes.T, first_row + ROWS);
//! include attention_tensor_fetch SET=next_s FROM=qkv FIRST=head+C STEP=stride ROW=start
//! include attention_tensor_fetch SET=next_g FROM=qkv FIRST=head+2u*C STEP=stride ROW=start
//! include attention_tensor_fill FROM=qkv FIRST=head STEP=stride ROW=first_row COUNT=ROWS TO=0u
//! include attention_tensor_fill FROM=dy FIRST=out STEP=C ROW=first_row COUNT=ROWS TO=SIZE_X
    var product = 0.0;
    for (var v = part; v < VECTORS_D; v += PARTS) {
        let a = y_eight(out, C, first_row + row, v);
        let b = dy_eight(out, C, first_row + row, v);
//! unroll c 4
        product += dot(unpack2x16float(a.{xyzw[c]}), unpack2x16float(b.{xyzw[c]}));
//! end
    }
    keep_four(row * STRIDE_S + part, vec4f(product, 0.0, 0.0, 0.0));
//! end
    workgroupBarrier();
//! include attention_tensor_rows X=x START=0u
//! include attention_tensor_rows X=z START=SIZE_X
//! if !KEYS
    var delta_row = 0.0;
//! unroll p PARTS
    delta_row += four(row * STRIDE_S + {p}u).x;
//! end
    let at_row = group.y * sizes.T + min(first_row + row, sizes.T - 1u);
    let lse_row = lse[at_row] * LOG2E;
    if (part == 0u && first_row + row < sizes.T) {
        delta[at_row] = delta_row;
    }
//! end
//! include attention_tensor_sums SET=o
//! if KEYS
//! include attention_tensor_sums SET=w
//! end
    for (var first = start; first < stop; first += COLS) {
        workgroupBarrier();
//! include attention_tensor_put SET=next_s TO=START_Y
//! include attention_tensor_put SET=next_g TO=START_Y+SIZE_Y
//! if KEYS
        for (var i = lane; i < COLS / 4u; i += THREADS) {
            var of_lse: vec4f;
            var of_delta: vec4f;
//! unroll c 4
            of_lse.{xyzw[c]} = lse[group.y * sizes.T + min(first + i * 4u + {c}u, sizes.T - 1u)] * LOG2E;
            of_delta.{xyzw[c]} = delta[group.y * sizes.T + min(first + i * 4u + {c}u, sizes.T - 1u)];
//! end
            stats[i] = of_lse;
            stats[COLS / 4u + i] = of_delta;
        }
//! end
        workgroupBarrier();
//! if KEYS
//! include attention_tensor_fetch SET=next_s FROM=qkv FIRST=head STEP=stride ROW=first+COLS
//! include attention_tensor_fetch SET=next_g FROM=dy FIRST=out STEP=C ROW=first+COLS
//! else
//! include attention_tensor_fetch SET=next_s FROM=qkv FIRST=head+C STEP=stride ROW=first+COLS
//! include attention_tensor_fetch SET=next_g FROM=qkv FIRST=head+2u*C STEP=stride ROW=first+COLS
//! end
//! include attention_tensor_scores X=x Y=START_Y TO=0u
//! include attention_tensor_scores X=z Y=START_Y+SIZE_Y TO=SIZE_S
        workgroupBarrier();
//! unroll e EIGHTS
        {
            let column = (part + {e}u * PARTS) * 8u;
//! unroll n 2
            let at{n} = row * STRIDE_S + column / 4u + {n}u;
//! if KEYS
            let lse{n} = stats[column / 4u + {n}u];
            let delta{n} = stats[COLS / 4u + column / 4u + {n}u];
            let places{n} = first + column + vec4u({4*n}u, {4*n+1}u, {4*n+2}u, {4*n+3}u);
            let seen{n} = (vec4u(first_row + row) <= places{n}) & (places{n} < vec4u(sizes.T));
//! else
            let lse{n} = vec4f(lse_row);
            let delta{n} = vec4f(delta_row);
            let seen{n} = first + column + vec4u({4*n}u, {4*n+1}u, {4*n+2}u, {4*n+3}u) <= vec4u(first_row + row);
//! end
            let p{n} = select(vec4f(0.0), exp2(min(four(at{n}) * SCALE2 - lse{n}, vec4f(0.0))), seen{n});
            let slope{n} = p{n} * (four(SIZE_S + at{n}) - delta{n}) * SCALE;
//! end
            let to = row * STRIDE_P + column / 8u;
//! if KEYS
            keep(START_P + to, packed(p0, p1));
            keep(START_P + SIZE_P + to, packed(slope0, slope1));
//! else
            keep(START_P + to, packed(slope0, slope1));
//! end
        }
//! end
        workgroupBarrier();
//! if KEYS
//! include attention_tensor_weigh SET=w P=START_P Y=START_Y+SIZE_Y
//! include attention_tensor_weigh SET=o P=START_P+SIZE_P Y=START_Y
//! else
//! include attention_tensor_weigh SET=o P=START_P Y=START_Y
//! end
    }
//! if KEYS
//! include attention_tensor_out SET=o TO=dqkv FIRST=head+C STEP=stride
//! include attention_tensor_out SET=w TO=dqkv FIRST=head+2u*C STEP=stride
//! else
//! include attention_tensor_out SET=o TO=dqkv FIRST=head STEP=stride
//! end
}
