// {SET}_ij += the dot products of the thread's rows of tile_x and columns of tile_y, over one chunk. Written into the entry,
// not called: a driver that does not inline a call keeps the sums in memory.
for (var d = 0u; d < WIDE; d += UNROLL_D) {
//! unroll u UNROLL_D
    {
//! unroll j CT
        let y{j} = tile_y[tx + {j}u * TX][d + {u}u];
//! end
//! unroll i RT
        let x{i} = tile_x[ty + {i}u * TY][d + {u}u];
//! unroll j CT
        {SET}_{i}{j} = fma(x{i}.w, y{j}.w, fma(x{i}.z, y{j}.z, fma(x{i}.y, y{j}.y, fma(x{i}.x, y{j}.x, {SET}_{i}{j}))));
//! end
//! end
    }
//! end
}
