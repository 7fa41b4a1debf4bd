// Two threads for each place (tx, ty) of a tile: the one of half 0 multiplies q and keys, that of half 1 dy and values. The
// gradients of the scores go through one tile; then each sums half of the vectors of dq.
var<workgroup> tiles_x: array<array<array<vec4f, STRIDE>, ROWS>, 2>; // q, dy
var<workgroup> tiles_y: array<array<array<vec4f, STRIDE>, COLS>, 2>; // keys, values

@compute @workgroup_size(THREADS)
fn attention_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let half = lane / PLACES;
    let tx = lane % TX;
    let ty = lane % PLACES / TX;
    let own_vector = tx + half * TX;
    let query = (groups.x - 1u - group.x) * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! include attention_ahead SET=next_k
//! include attention_ahead SET=next_v
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=0u
//! include attention_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=0u
//! include attention_keep TILE=tiles_x[0] FROM=qkv FIRST=head STEP=stride ROW=query COUNT=ROWS
//! include attention_keep TILE=tiles_x[1] FROM=dy FIRST=out STEP=C ROW=query COUNT=ROWS
    if (half == 0u) {
//! unroll i RT
        var product_{i} = 0.0;
        for (var d = tx * 4u; d < D; d += TX * 4u) {
            product_{i} += dot(y_vector(out, C, query + ty + {i}u * TY, d), dy_vector(out, C, query + ty + {i}u * TY, d));
        }
//! end
//! unroll q QUADS_R
        tile_p[ty + {q}u * TY][tx] = vec4f(product_{4*q}, product_{4*q+1}, product_{4*q+2}, product_{4*q+3});
//! end
    }
    workgroupBarrier();
//! unroll q QUADS_R
    var deltas_{q} = tile_p[ty + {q}u * TY][0];
    for (var t = 1u; t < TX; t++) {
        deltas_{q} += tile_p[ty + {q}u * TY][t];
    }
//! end
//! unroll i RT
    let at_{i} = group.y * sizes.T + min(query + ty + {i}u * TY, sizes.T - 1u);
    let lse_{i} = lse[at_{i}] * LOG2E;
    let delta_{i} = deltas_{i/4}.{xyzw[i%4]};
    if (half == 0u && tx == 0u && query + ty + {i}u * TY < sizes.T) {
        delta[at_{i}] = delta_{i};
    }
//! end
//! include attention_sums SET=o
    let stop = min(sizes.T, query + ROWS);
    for (var key = 0u; key < stop; key += COLS) {
        workgroupBarrier();
//! include attention_put TILE=tiles_y[0] SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key
//! include attention_put TILE=tiles_y[1] SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key
        workgroupBarrier();
//! include attention_fetch SET=next_k FROM=qkv FIRST=head+C STEP=stride ROW=key+COLS
//! include attention_fetch SET=next_v FROM=qkv FIRST=head+2u*C STEP=stride ROW=key+COLS
//! include attention_clear SET=s
//! include attention_dots SET=s X=tiles_x[half] Y=tiles_y[half]
        if (half == 0u) {
//! unroll i RT
//! unroll j CT
            s_{i}{j} = exp2(min(fma(s_{i}{j}, SCALE2, -lse_{i}), 0.0));
            s_{i}{j} = select(0.0, s_{i}{j}, key + tx + {j}u * TX <= query + ty + {i}u * TY);
//! end
//! unroll q QUADS_C
            tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
        }
        workgroupBarrier();
        if (half == 1u) {
//! unroll i RT
//! unroll q QUADS_C
            tile_p[ty + {i}u * TY][{q*TX}u + tx] *= SCALE * (
                vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3}) - delta_{i}
            );
//! end
//! end
        }
        workgroupBarrier();
//! include attention_weigh SET=o P=tile_p Y=tiles_y[0]
    }
//! unroll i RT
//! unroll c QUADS_D
    dqkv_store(head, stride, query + ty + {i}u * TY, (own_vector + {c}u * HOP) * 4u, o_{c}{i});
//! end
//! end
}
