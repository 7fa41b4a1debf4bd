// {SET}_ci: the thread's rows of tile_p times tile_y: four of chunk c's floats, those at vector tx.
//! unroll c CHUNKS
//! unroll i 4
var<private> {SET}_{c}{i}: vec4f;
//! end

fn {SET}_add_{c}(tx: u32, ty: u32) {
    if (tx < WIDE) {
        for (var t = 0u; t < TX; t++) {
//! unroll i 4
            let p{i} = tile_p[(ty + {i}u * TY) * STRIDE_P + t];
//! end
//! unroll j 4
            let y{j} = tile_y[(t + {j}u * TX) * STRIDE + tx];
//! end
//! unroll i 4
//! unroll j 4
            {SET}_{c}{i} = fma(vec4f(p{i}.{xyzw[j]}), y{j}, {SET}_{c}{i});
//! end
//! end
        }
    }
}
//! end
