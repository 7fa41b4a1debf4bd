// tile_x holds the keys, tile_v the values of the rows; tile_y q, tile_g dy of the columns, stats their lse (as a power of two)
// and delta. With SPARE the gradients of the scores have a tile of their own.
var<workgroup> tile_v: array<array<vec4f, STRIDE>, ROWS>;
var<workgroup> tile_g: array<array<vec4f, STRIDE>, COLS>;
var<workgroup> stats: array<vec2f, COLS>;
//! if SPARE
var<workgroup> tile_s: array<array<vec4f, STRIDE_P>, ROWS>;
//! end

@compute @workgroup_size(THREADS)
fn attention_backward_keys(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
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
//! include attention_keep TILE=tile_x FROM=qkv FIRST=head+C STEP=stride ROW=key COUNT=ROWS
//! include attention_keep TILE=tile_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key COUNT=ROWS
//! include attention_sums SET=o
//! include attention_sums SET=w
    for (var query = first; query < sizes.T; query += COLS) {
        workgroupBarrier();
//! include attention_put TILE=tile_y SET=next_q FROM=qkv FIRST=head STEP=stride ROW=query
//! include attention_put TILE=tile_g SET=next_g FROM=dy FIRST=out STEP=C ROW=query
        for (var i = lane; i < COLS; i += THREADS) {
            let at = group.y * sizes.T + min(query + i, sizes.T - 1u);
            stats[i] = vec2f(lse[at] * LOG2E, delta[at]);
        }
        workgroupBarrier();
//! include attention_fetch SET=next_q FROM=qkv FIRST=head STEP=stride ROW=query+COLS
//! include attention_fetch SET=next_g FROM=dy FIRST=out STEP=C ROW=query+COLS
//! include attention_clear SET=s
//! include attention_dots SET=s X=tile_x Y=tile_y
//! unroll j CT
        let stats{j} = stats[tx + {j}u * TX];
//! unroll i RT
        s_{i}{j} = exp2(min(fma(s_{i}{j}, SCALE2, -stats{j}.x), 0.0));
//! end
//! end
        if (query < key + ROWS || query + COLS > sizes.T) { // the diagonal goes through, or rows end
//! unroll j CT
            let last{j} = select(0u, query + tx + {j}u * TX + 1u, query + tx + {j}u * TX < sizes.T); // keys below it are seen
//! unroll i RT
            s_{i}{j} = select(0.0, s_{i}{j}, key + ty + {i}u * TY < last{j});
//! end
//! end
        }
//! unroll i RT
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
//! include attention_clear SET=g
//! include attention_dots SET=g X=tile_v Y=tile_g
//! if SPARE
//! include attention_slopes TILE=tile_s
        workgroupBarrier();
//! include attention_weigh SET=w P=tile_p Y=tile_g
//! include attention_weigh SET=o P=tile_s Y=tile_y
//! else
        workgroupBarrier();
//! include attention_weigh SET=w P=tile_p Y=tile_g
        workgroupBarrier();
//! include attention_slopes TILE=tile_p
        workgroupBarrier();
//! include attention_weigh SET=o P=tile_p Y=tile_y
//! end
    }
//! unroll i RT
//! unroll c QUADS_D
    dqkv_store(head + C, stride, key + ty + {i}u * TY, (tx + {c}u * TX) * 4u, o_{c}{i});
    dqkv_store(head + 2u * C, stride, key + ty + {i}u * TY, (tx + {c}u * TX) * 4u, w_{c}{i});
//! end
//! end
}
