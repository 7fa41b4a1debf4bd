//! kernel attention
// FlashAttention-2 (arXiv 2307.08691) with online softmax (arXiv 1805.02867): a workgroup owns ROWS queries of one head and
// walks over the keys up to its last query. No T×T buffer; memory is O(T).
//! include attention_tiles
@group(0) @binding(0) var<storage, read> qkv: array<Element>; // [R,3C]
@group(0) @binding(1) var<storage, read_write> y: array<Element>; // [R,C]
@group(0) @binding(2) var<storage, read_write> lse: array<f32>; // [B,H,T]
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! include attention_load FROM=qkv
//! include attention_dots SET=s
//! include attention_product SET=o
//! include attention_store TO=y

@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % TX;
    let ty = lane / TX;
    let query = (groups.x - 1u - group.x) * ROWS; // the longest first
    let C = sizes.H * D;
    let stride = 3u * C;
    let head = (group.y / sizes.H) * sizes.T * stride + (group.y % sizes.H) * D;
    var top = vec4f(LOWEST);
    var total = vec4f(0.0);
    let stop = min(sizes.T, query + ROWS);
//! if CHUNKS == 1
    qkv_to_x(head, stride, query, 0u, lane);
//! end
    for (var key = 0u; key < stop; key += COLS) {
        s_clear();
//! unroll c CHUNKS
        workgroupBarrier();
//! if CHUNKS != 1
        qkv_to_x(head, stride, query, {c}u, lane);
//! end
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
        s_add_chunk(tx, ty);
//! end
        var highest = vec4f(LOWEST);
//! unroll i 4
//! unroll j 4
        s_{i}{j} = select(LOWEST, s_{i}{j} * SCALE, key + tx + {j}u * TX <= query + ty + {i}u * TY);
        highest.{xyzw[i]} = max(highest.{xyzw[i]}, s_{i}{j});
//! end
//! end
        let new_top = max(top, max_over_row(highest, tx, ty));
        let shrink = exp(top - new_top);
        top = new_top;
        total *= shrink;
//! unroll i 4
//! unroll j 4
        s_{i}{j} = exp(s_{i}{j} - top.{xyzw[i]});
//! end
        total.{xyzw[i]} += (s_{i}0 + s_{i}1) + (s_{i}2 + s_{i}3);
        tile_p[(ty + {i}u * TY) * STRIDE_P + tx] = vec4f(s_{i}0, s_{i}1, s_{i}2, s_{i}3);
//! unroll c CHUNKS
        o_{c}{i} *= shrink.{xyzw[i]};
//! end
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head + 2u * C, stride, key, {c}u, lane);
        workgroupBarrier();
        o_add_{c}(tx, ty);
//! end
    }
    total = sum_over_row(total, tx, ty);
    let out = (group.y / sizes.H) * sizes.T * C + (group.y % sizes.H) * D;
//! unroll i 4
//! unroll c CHUNKS
    if (tx < WIDE) {
        y_store(out, C, query + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, o_{c}{i} / total.{xyzw[i]});
    }
//! end
    if (tx == 0u && query + ty + {i}u * TY < sizes.T) {
        lse[group.y * sizes.T + query + ty + {i}u * TY] = top.{xyzw[i]} + log(total.{xyzw[i]});
    }
//! end
}

//! kernel attention_backward
// Two passes, each free of atomics: a workgroup owns ROWS queries and sums dq over keys; then one owns ROWS keys and sums dk
// and dv over queries. Scores are computed again from lse in both. The first also leaves delta = Σ dy·y for the second.
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
//! include attention_dots SET=s
//! include attention_dots SET=g
//! include attention_product SET=o
//! include attention_product SET=w
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
    var products = vec4f(0.0);
    var row_lse = vec4f(0.0);
//! unroll i 4
    for (var d = tx * 4u; d < D; d += TX * 4u) {
        products.{xyzw[i]} += dot(y_vector(out, C, query + ty + {i}u * TY, d), dy_vector(out, C, query + ty + {i}u * TY, d));
    }
    row_lse.{xyzw[i]} = lse[group.y * sizes.T + min(query + ty + {i}u * TY, sizes.T - 1u)];
//! end
    let row_delta = sum_over_row(products, tx, ty);
//! unroll i 4
    if (tx == 0u && query + ty + {i}u * TY < sizes.T) {
        delta[group.y * sizes.T + query + ty + {i}u * TY] = row_delta.{xyzw[i]};
    }
//! end
    let stop = min(sizes.T, query + ROWS);
    for (var key = 0u; key < stop; key += COLS) {
        s_clear();
        g_clear();
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head, stride, query, {c}u, lane);
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
        s_add_chunk(tx, ty);
        workgroupBarrier();
        dy_to_x(out, C, query, {c}u, lane);
        qkv_to_y(head + 2u * C, stride, key, {c}u, lane);
        workgroupBarrier();
        g_add_chunk(tx, ty);
//! end
//! unroll i 4
//! unroll j 4
        let p{i}{j} = exp(min(s_{i}{j} * SCALE - row_lse.{xyzw[i]}, 0.0));
        s_{i}{j} = select(0.0, p{i}{j} * (g_{i}{j} - row_delta.{xyzw[i]}) * SCALE, key + tx + {j}u * TX <= query + ty + {i}u * TY);
//! end
        tile_p[(ty + {i}u * TY) * STRIDE_P + tx] = vec4f(s_{i}0, s_{i}1, s_{i}2, s_{i}3);
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head + C, stride, key, {c}u, lane);
        workgroupBarrier();
        o_add_{c}(tx, ty);
//! end
    }
    if (tx < WIDE) {
//! unroll i 4
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
    for (var query = key / COLS * COLS; query < sizes.T; query += COLS) {
        s_clear();
        g_clear();
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head + C, stride, key, {c}u, lane);
        qkv_to_y(head, stride, query, {c}u, lane);
        workgroupBarrier();
        s_add_chunk(tx, ty);
//! end
//! unroll j 4
        let at{j} = group.y * sizes.T + min(query + tx + {j}u * TX, sizes.T - 1u);
        let lse{j} = lse[at{j}];
        let delta{j} = delta[at{j}];
        let last{j} = select(0u, query + tx + {j}u * TX + 1u, query + tx + {j}u * TX < sizes.T); // keys below it are seen
//! unroll i 4
        s_{i}{j} = select(0.0, exp(min(s_{i}{j} * SCALE - lse{j}, 0.0)), key + ty + {i}u * TY < last{j});
//! end
//! end
//! unroll i 4
        tile_p[(ty + {i}u * TY) * STRIDE_P + tx] = vec4f(s_{i}0, s_{i}1, s_{i}2, s_{i}3);
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_x(head + 2u * C, stride, key, {c}u, lane);
        dy_to_y(out, C, query, {c}u, lane);
        workgroupBarrier();
        g_add_chunk(tx, ty);
        w_add_{c}(tx, ty);
//! end
        workgroupBarrier();
//! unroll i 4
        tile_p[(ty + {i}u * TY) * STRIDE_P + tx] = vec4f(
            s_{i}0 * (g_{i}0 - delta0), s_{i}1 * (g_{i}1 - delta1), s_{i}2 * (g_{i}2 - delta2), s_{i}3 * (g_{i}3 - delta3)) * SCALE;
//! end
//! unroll c CHUNKS
        workgroupBarrier();
        qkv_to_y(head, stride, query, {c}u, lane);
        workgroupBarrier();
        o_add_{c}(tx, ty);
//! end
    }
    if (tx < WIDE) {
//! unroll i 4
//! unroll c CHUNKS
        dqkv_store(head + C, stride, key + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, o_{c}{i});
        dqkv_store(head + 2u * C, stride, key + ty + {i}u * TY, {c}u * CHUNK + tx * 4u, w_{c}{i});
//! end
//! end
    }
}
