//! unroll n LOADS_Y
{
    let i = lane + {n}u * THREADS;
//! if COLS * VECTORS_D % THREADS == 0
    {
//! else
    if (i < COLS * VECTORS_D) {
//! end
        keep({TO} + i / VECTORS_D * STRIDE_D + i % VECTORS_D, {SET}_{n});
    }
}
//! end
