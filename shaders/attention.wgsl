//! kernel attention
// FlashAttention-2 (arXiv 2307.08691) with online softmax (arXiv 1805.02867): a workgroup owns ROWS queries of one head and
// walks over the keys up to its last query. No T×T buffer; memory is O(T).
const BATCH = true;
//! include attention_tiles
@group(0) @binding(0) var<storage, read> qkv: array<Element>; // [R,3C]
@group(0) @binding(1) var<storage, read_write> y: array<Element>; // [R,C]
@group(0) @binding(2) var<storage, read_write> lse: array<f32>; // [B,H,T]
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! include attention_load FROM=qkv
//! include attention_store TO=y

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
//! include attention_dots SET=s
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

//! kernel attention_backward
// Two passes, each free of atomics: a workgroup owns ROWS queries and sums dq over keys; then one owns ROWS keys and sums dk
// and dv over queries. Scores are computed again from lse in both. The first also leaves delta = Σ dy·y for the second.
const BATCH = false;
//! include attention_tiles
@group(0) @binding(0) var<storage, read> qkv: array<Element>; // [R,3C]
@group(0) @binding(1) var<storage, read> y: array<Element>; // [R,C]
@group(0) @binding(2) var<storage, read> lse: array<f32>; // [B,H,T]
@group(0) @binding(3) var<storage, read> dy: array<Element>; // [R,C]
@group(0) @binding(4) var<storage, read_write> delta: array<f32>; // [B,H,T]
@group(0) @binding(5) var<storage, read_write> dqkv: array<Element>; // [R,3C]
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! include attention_load FROM=qkv
//! include attention_load FROM=y
//! include attention_load FROM=dy
//! include attention_store TO=dqkv

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
//! include attention_dots SET=s
        workgroupBarrier();
        dy_to_x(out, C, query, {c}u, lane);
        qkv_to_y(head + 2u * C, stride, key, {c}u, lane);
        workgroupBarrier();
//! include attention_dots SET=g
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
//! include attention_dots SET=s
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
//! include attention_dots SET=g
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
