// Two threads for each place (tx, ty) of a tile: the one of half 0 multiplies keys and q and sums dv, that of half 1 values and dy
// and sums dk. Each holds one matrix of scores and one of sums: room for more of them in registers.
var<workgroup> tiles_x: array<array<array<vec4f, STRIDE>, ROWS>, 2>; // keys, values
var<workgroup> tiles_y: array<array<array<vec4f, STRIDE>, COLS>, 2>; // q, dy
var<workgroup> tiles_p: array<array<array<vec4f, STRIDE_P>, ROWS>, 2>; // weights, gradients of the scores
var<workgroup> stats: array<vec2f, COLS>; // lse (as a power of two), delta

@compute @workgroup_size(THREADS)
fn attention_backward_keys(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let half = lane / PLACES;
    let other = 1u - half;
    let tx = lane % TX;
    let ty = lane % PLACES / TX;
    let own_vector = tx;
    let key = group.x * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
    let first = key / COLS * COLS;
//! include attention_ahead SET=next_q
//! include attention_ahead SET=next_g
//! include attention_fetch SET=next_q FROM=qkv FIRST=head STEP=stride ROW=first
//! include attention_fetch SET=next_g FROM=dy FIRST=out STEP=C ROW=first
//! include attention_keep TILE=tiles_x[0] FROM=qkv FIRST=head+C STEP=stride ROW=key COUNT=ROWS
//! include attention_keep TILE=tiles_x[1] FROM=qkv FIRST=head+2u*C STEP=stride ROW=key COUNT=ROWS
//! include attention_sums SET=o
    for (var query = first; query < sizes.T; query += COLS) {
        workgroupBarrier();
//! include attention_put TILE=tiles_y[0] SET=next_q FROM=qkv FIRST=head STEP=stride ROW=query
//! include attention_put TILE=tiles_y[1] SET=next_g FROM=dy FIRST=out STEP=C ROW=query
        for (var i = lane; i < COLS; i += THREADS) {
            let at = group.y * sizes.T + min(query + i, sizes.T - 1u);
            stats[i] = vec2f(lse[at] * LOG2E, delta[at]);
        }
        workgroupBarrier();
//! include attention_fetch SET=next_q FROM=qkv FIRST=head STEP=stride ROW=query+COLS
//! include attention_fetch SET=next_g FROM=dy FIRST=out STEP=C ROW=query+COLS
//! include attention_clear SET=s
//! include attention_dots SET=s X=tiles_x[half] Y=tiles_y[half]
//! unroll j CT
        let stats{j} = stats[tx + {j}u * TX];
//! end
        if (half == 0u) {
//! unroll j CT
            // The keys below it are seen by the column.
            let last{j} = select(0u, query + tx + {j}u * TX + 1u, query + tx + {j}u * TX < sizes.T);
//! unroll i RT
            s_{i}{j} = exp2(min(fma(s_{i}{j}, SCALE2, -stats{j}.x), 0.0));
            s_{i}{j} = select(0.0, s_{i}{j}, key + ty + {i}u * TY < last{j});
//! end
//! end
//! unroll i RT
//! unroll q QUADS_C
            tiles_p[0][ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
        }
        workgroupBarrier();
        if (half == 1u) {
//! unroll i RT
//! unroll q QUADS_C
            let slopes_{i}{q} = vec4f(
//! unroll r 4
                s_{i}{4*q+r} - stats{4*q+r}.y,
//! end
            );
            tiles_p[1][ty + {i}u * TY][{q*TX}u + tx] = SCALE * slopes_{i}{q} * tiles_p[0][ty + {i}u * TY][{q*TX}u + tx];
//! end
//! end
        }
        workgroupBarrier();
//! include attention_weigh SET=o P=tiles_p[half] Y=tiles_y[other]
    }
//! unroll i RT
//! unroll c QUADS_D
    dqkv_store(head + (2u - half) * C, stride, key + ty + {i}u * TY, (own_vector + {c}u * HOP) * 4u, o_{c}{i});
//! end
//! end
}
