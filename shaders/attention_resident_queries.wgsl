// tile_x holds q, tile_g dy of the rows; tile_y the keys, tile_v the values of the columns.
var<workgroup> tile_g: array<array<vec4f, STRIDE>, ROWS>;
var<workgroup> tile_v: array<array<vec4f, STRIDE>, COLS>;

@compute @workgroup_size(THREADS)
fn attention_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
    let own_vector = tx;
    let query = (groups.x - 1u - group.x) * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! include attention_ahead SET=next_k
//! include attention_ahead SET=next_v
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=0u
//! include attention_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=0u
//! include attention_keep TILE=tile_x FROM=qkv FIRST=head STEP=stride ROW=query COUNT=ROWS
//! include attention_keep TILE=tile_g FROM=dy FIRST=out STEP=C ROW=query COUNT=ROWS
//! unroll i RT
    var product_{i} = 0.0;
    for (var d = tx * 4u; d < D; d += TX * 4u) {
        product_{i} += dot(y_vector(out, C, query + ty + {i}u * TY, d), dy_vector(out, C, query + ty + {i}u * TY, d));
    }
    let lse_{i} = lse[group.y * sizes.T + min(query + ty + {i}u * TY, sizes.T - 1u)] * LOG2E;
//! end
//! unroll q QUADS_R
    tile_p[ty + {q}u * TY][tx] = vec4f(product_{4*q}, product_{4*q+1}, product_{4*q+2}, product_{4*q+3});
//! end
    workgroupBarrier();
//! unroll q QUADS_R
    var deltas_{q} = tile_p[ty + {q}u * TY][0];
    for (var t = 1u; t < TX; t++) {
        deltas_{q} += tile_p[ty + {q}u * TY][t];
    }
//! end
//! unroll i RT
    let delta_{i} = deltas_{i/4}.{xyzw[i%4]};
    if (tx == 0u && query + ty + {i}u * TY < sizes.T) {
        delta[group.y * sizes.T + query + ty + {i}u * TY] = delta_{i};
    }
//! end
//! include attention_sums SET=o
    let stop = min(sizes.T, query + ROWS);
    for (var key = 0u; key < stop; key += COLS) {
        workgroupBarrier();
//! include attention_put TILE=tile_y SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key
//! include attention_put TILE=tile_v SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key
        workgroupBarrier();
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key+COLS
//! include attention_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key+COLS
//! include attention_clear SET=s
//! include attention_clear SET=g
//! include attention_dots SET=s X=tile_x Y=tile_y
//! include attention_dots SET=g X=tile_g Y=tile_v
//! unroll i RT
//! unroll j CT
        s_{i}{j} = exp2(min(fma(s_{i}{j}, SCALE2, -lse_{i}), 0.0)) * (g_{i}{j} - delta_{i}) * SCALE;
//! end
//! end
        if (key + COLS > query + 1u) { // the diagonal goes through
//! unroll i RT
//! unroll j CT
            s_{i}{j} = select(0.0, s_{i}{j}, key + tx + {j}u * TX <= query + ty + {i}u * TY);
//! end
//! end
        }
//! unroll i RT
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
        workgroupBarrier();
//! include attention_weigh SET=o P=tile_p Y=tile_y
    }
//! unroll i RT
//! unroll c QUADS_D
    dqkv_store(head, stride, query + ty + {i}u * TY, (tx + {c}u * TX) * 4u, o_{c}{i});
//! end
//! end
}
