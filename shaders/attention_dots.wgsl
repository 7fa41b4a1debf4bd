// {SET}_ij: the dot products of the thread's rows of tile_x and columns of tile_y, one chunk added at a time.
//! unroll i 4
//! unroll j 4
var<private> {SET}_{i}{j}: f32;
//! end
//! end

fn {SET}_clear() {
//! unroll i 4
//! unroll j 4
    {SET}_{i}{j} = 0.0;
//! end
//! end
}

fn {SET}_add_chunk(tx: u32, ty: u32) {
    for (var d = 0u; d < WIDE; d++) {
//! unroll i 4
        let x{i} = tile_x[(ty + {i}u * TY) * STRIDE + d];
//! end
//! unroll j 4
        let y{j} = tile_y[(tx + {j}u * TX) * STRIDE + d];
//! end
//! unroll i 4
//! unroll j 4
        {SET}_{i}{j} = fma(x{i}.w, y{j}.w, fma(x{i}.z, y{j}.z, fma(x{i}.y, y{j}.y, fma(x{i}.x, y{j}.x, {SET}_{i}{j}))));
//! end
//! end
    }
}
