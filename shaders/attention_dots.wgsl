// {SET}_ij += the dot products of the thread's rows of {X} and columns of {Y}, over one chunk. Written into the entry, not
// called: a driver that does not inline a call keeps the sums in memory.
{
//! if UNROLL_D == WIDE
    const d = 0u;
    {
//! else
    for (var d = 0u; d < WIDE; d += UNROLL_D) {
//! end
//! unroll u UNROLL_D
        {
//! unroll j CT
            let y{j} = {Y}[tx + {j}u * TX][(d + {u}u) ^ ((tx + {j}u * TX) & TURN)];
//! end
//! unroll i RT
            let x{i} = {X}[ty + {i}u * TY][(d + {u}u) ^ ((ty + {i}u * TY) & TURN)];
//! unroll j CT
            {SET}_{i}{j} = fma(x{i}.w, y{j}.w, fma(x{i}.z, y{j}.z, fma(x{i}.y, y{j}.y, fma(x{i}.x, y{j}.x, {SET}_{i}{j}))));
//! end
//! end
        }
//! end
    }
}
