// Keys go into tile_y; values into tile_v with SPARE, else over the keys once they are used.
//! if SPARE
var<workgroup> tile_v: array<array<vec4f, STRIDE>, COLS>;
//! end

@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
    let own_vector = tx;
    let query = (groups.x - 1u - group.x) * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
//! unroll i RT
    var top_{i} = LOWEST;
    var total_{i} = 0.0;
//! end
//! include attention_sums SET=o
    let stop = min(sizes.T, query + ROWS);
//! include attention_ahead SET=next_k
//! include attention_ahead SET=next_v
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=0u
//! include attention_keep TILE=tile_x FROM=qkv FIRST=head STEP=stride ROW=query COUNT=ROWS
    for (var key = 0u; key < stop; key += COLS) {
//! if !SPARE
        workgroupBarrier();
//! end
//! include attention_put TILE=tile_y SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key
//! include attention_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key
        workgroupBarrier();
//! include attention_clear SET=s
//! include attention_dots SET=s X=tile_x Y=tile_y
        if (key + COLS > query + 1u) { // the diagonal goes through
//! unroll i RT
//! unroll j CT
            s_{i}{j} = select(LOWEST, s_{i}{j}, key + tx + {j}u * TX <= query + ty + {i}u * TY);
//! end
//! end
        }
//! unroll i RT
        var highest_{i} = s_{i}0;
//! unroll j CT
        highest_{i} = max(highest_{i}, s_{i}{j});
//! end
//! end
//! unroll q QUADS_R
        lanes[{q}u * THREADS + lane] = vec4f(highest_{4*q}, highest_{4*q+1}, highest_{4*q+2}, highest_{4*q+3});
//! end
        workgroupBarrier();
//! unroll q QUADS_R
        var tops_{q} = lanes[{q}u * THREADS + ty * TX];
        for (var t = 1u; t < TX; t++) {
            tops_{q} = max(tops_{q}, lanes[{q}u * THREADS + ty * TX + t]);
        }
//! end
//! unroll i RT
        let new_{i} = max(top_{i}, tops_{i/4}.{xyzw[i%4]} * SCALE2);
        let shrink_{i} = exp2(top_{i} - new_{i});
        top_{i} = new_{i};
        total_{i} *= shrink_{i};
//! unroll j CT
        s_{i}{j} = exp2(fma(s_{i}{j}, SCALE2, -new_{i}));
        total_{i} += s_{i}{j};
//! end
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! unroll c QUADS_D
        o_{c}{i} *= shrink_{i};
//! end
//! end
//! if SPARE
//! include attention_put TILE=tile_v SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key
//! else
//! include attention_put TILE=tile_y SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key
//! end
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key+COLS
        workgroupBarrier();
//! if SPARE
//! include attention_weigh SET=o P=tile_p Y=tile_v
//! else
//! include attention_weigh SET=o P=tile_p Y=tile_y
//! end
    }
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! unroll q QUADS_R
    lanes[{q}u * THREADS + lane] = vec4f(total_{4*q}, total_{4*q+1}, total_{4*q+2}, total_{4*q+3});
//! end
    workgroupBarrier();
//! unroll q QUADS_R
    var totals_{q} = lanes[{q}u * THREADS + ty * TX];
    for (var t = 1u; t < TX; t++) {
        totals_{q} += lanes[{q}u * THREADS + ty * TX + t];
    }
//! end
//! unroll i RT
    let row_total_{i} = totals_{i/4}.{xyzw[i%4]};
//! unroll c QUADS_D
    y_store(out, C, query + ty + {i}u * TY, (tx + {c}u * TX) * 4u, o_{c}{i} / row_total_{i});
//! end
    if (tx == 0u && query + ty + {i}u * TY < sizes.T) {
        lse[group.y * sizes.T + query + ty + {i}u * TY] = (top_{i} + log2(row_total_{i})) / LOG2E;
    }
//! end
}
