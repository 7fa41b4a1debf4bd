// {SET}_ci += the thread's rows of tile_p times tile_y: four of chunk c's floats, those at vector tx.
if (tx < WIDE) {
    for (var t = 0u; t < TX; t++) {
//! unroll q QUADS_C
        {
//! unroll j 4
            let y{j} = tile_y[t + {4*q+j}u * TX][tx];
//! end
//! unroll i RT
            let p{i} = tile_p[ty + {i}u * TY][{q}u * TX + t];
//! unroll j 4
            {SET}_{c}{i} = fma(vec4f(p{i}.{xyzw[j]}), y{j}, {SET}_{c}{i});
//! end
//! end
        }
//! end
    }
}
