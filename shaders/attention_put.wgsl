// COLS rows of {FROM} from row {ROW} into {TILE}: from the registers {SET}_n with PREFETCH.
//! unroll n LOADS_Y
{
    let i = lane + {n}u * THREADS;
//! if COLS * WIDE % THREADS == 0
    {
//! else
    if (i < COLS * WIDE) {
//! end
//! if PREFETCH
        {TILE}[i / WIDE][(i % WIDE) ^ ((i / WIDE) & TURN)] = {SET}_{n};
//! else
        {TILE}[i / WIDE][(i % WIDE) ^ ((i / WIDE) & TURN)] = {FROM}_vector({FIRST}, {STEP}, {ROW} + i / WIDE, i % WIDE * 4u);
//! end
    }
}
//! end
