@compute @workgroup_size(THREADS)
fn attention_backward_keys(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
    let key = group.x * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! include attention_sums SET=o
//! include attention_sums SET=w
    for (var query = key / COLS * COLS; query < sizes.T; query += COLS) {
//! include attention_clear SET=s
//! include attention_clear SET=g
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head + C, stride, key, {c}u, lane);
        qkv_to_y(head, stride, query, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=s X=tile_x Y=tile_y
//! end
//! unroll j CT
        let at{j} = group.y * sizes.T + min(query + tx + {j}u * TX, sizes.T - 1u);
        let lse{j} = lse[at{j}];
        let delta{j} = delta[at{j}];
        let last{j} = select(0u, query + tx + {j}u * TX + 1u, query + tx + {j}u * TX < sizes.T); // keys below it are seen
//! unroll i RT
        s_{i}{j} = select(0.0, exp(min(s_{i}{j} * SCALE - lse{j}, 0.0)), key + ty + {i}u * TY < last{j});
//! end
//! end
//! unroll i RT
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = vec4f(s_{i}{4*q}, s_{i}{4*q+1}, s_{i}{4*q+2}, s_{i}{4*q+3});
//! end
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head + 2u * C, stride, key, {c}u, lane);
        dy_to_y(out, C, query, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=g X=tile_x Y=tile_y
//! include attention_product SET=w
//! end
        workgroupBarrier();
//! unroll i RT
//! unroll q QUADS_C
        tile_p[ty + {i}u * TY][{q*TX}u + tx] = SCALE * vec4f(
//! unroll r 4
            s_{i}{4*q+r} * (g_{i}{4*q+r} - delta{4*q+r}),
//! end
        );
//! end
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head, stride, query, {c}u, lane);
        workgroupBarrier();
//! include attention_product SET=o
//! end
    }
    if (tx < WIDE) {
//! unroll i RT
//! unroll c CHUNKS
        dqkv_store(head + C, stride, key + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, o_{c}{i});
        dqkv_store(head + 2u * C, stride, key + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, w_{c}{i});
//! end
//! end
    }
}
