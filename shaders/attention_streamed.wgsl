// D in chunks: tile_x and tile_y hold CHUNK floats of their rows, and are filled anew for each. For little workgroup memory.
@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
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
//! if CHUNKS == 1
    qkv_to_x(head, stride, query, 0u, lane);
//! end
    for (var key = 0u; key < stop; key += COLS) {
//! include attention_clear SET=s
//! unroll c CHUNKS
        workgroupBarrier();
//! if CHUNKS != 1
        qkv_to_x(head, stride, query, {c}u, lane);
//! end
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=s X=tile_x Y=tile_y
//! end
//! unroll i RT
        var highest_{i} = LOWEST;
//! unroll j CT
        s_{i}{j} = select(LOWEST, s_{i}{j} * SCALE, key + tx + {j}u * TX <= query + ty + {i}u * TY);
        highest_{i} = max(highest_{i}, s_{i}{j});
//! end
//! end
//! unroll q QUADS_R
        let tops_{q} = max_over_row(vec4f(highest_{4*q}, highest_{4*q+1}, highest_{4*q+2}, highest_{4*q+3}), tx, ty);
//! end
//! unroll i RT
        let new_{i} = max(top_{i}, tops_{i/4}.{xyzw[i%4]});
        let shrink_{i} = exp(top_{i} - new_{i});
        top_{i} = new_{i};
        total_{i} *= shrink_{i};
//! unroll j CT
        s_{i}{j} = exp(s_{i}{j} - new_{i});
        total_{i} += s_{i}{j};
//! end
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! unroll c CHUNKS
        o_{c}{i} *= shrink_{i};
//! end
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head + 2u * C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_product SET=o
//! end
    }
//! unroll q QUADS_R
    let totals_{q} = sum_over_row(vec4f(total_{4*q}, total_{4*q+1}, total_{4*q+2}, total_{4*q+3}), tx, ty);
//! end
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! unroll i RT
    let row_total_{i} = totals_{i/4}.{xyzw[i%4]};
//! unroll c CHUNKS
    if (tx < WIDE) {
        y_store(out, C, query + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, o_{c}{i} / row_total_{i});
    }
//! end
    if (tx == 0u && query + ty + {i}u * TY < sizes.T) {
        lse[group.y * sizes.T + query + ty + {i}u * TY] = top_{i} + log(row_total_{i});
    }
//! end
}
