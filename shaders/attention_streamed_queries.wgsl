@compute @workgroup_size(THREADS)
fn attention_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
    let query = (groups.x - 1u - group.x) * ROWS;
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! unroll i RT
    var product_{i} = 0.0;
    for (var d = tx * 4u; d < D; d += TX * 4u) {
        product_{i} += dot(y_vector(out, C, query + ty + {i}u * TY, d), dy_vector(out, C, query + ty + {i}u * TY, d));
    }
    let lse_{i} = lse[group.y * sizes.T + min(query + ty + {i}u * TY, sizes.T - 1u)];
//! end
//! unroll q QUADS_R
    let deltas_{q} = sum_over_row(vec4f(product_{4*q}, product_{4*q+1}, product_{4*q+2}, product_{4*q+3}), tx, ty);
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
//! include attention_clear SET=s
//! include attention_clear SET=g
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head, stride, query, {c}u, lane);
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=s X=tile_x Y=tile_y
        workgroupBarrier();
        dy_to_x(out, C, query, {c}u, lane);
        qkv_to_y(head + 2u * C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=g X=tile_x Y=tile_y
//! end
//! unroll i RT
//! unroll j CT
        let p{i}{j} = exp(min(s_{i}{j} * SCALE - lse_{i}, 0.0));
        s_{i}{j} = select(0.0, p{i}{j} * (g_{i}{j} - delta_{i}) * SCALE, key + tx + {j}u * TX <= query + ty + {i}u * TY);
//! end
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_product SET=o
//! end
    }
    if (tx < WIDE) {
//! unroll i RT
//! unroll c CHUNKS
        dqkv_store(head, stride, query + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, o_{c}{i});
//! end
//! end
    }
}
