// The thread's share of COLS rows of {FROM} into registers {SET}_n, ahead of their use.
//! unroll n LOADS_Y
{SET}_{n} = {FROM}_eight({FIRST}, {STEP}, {ROW} + (lane + {n}u * THREADS) / VECTORS_D, (lane + {n}u * THREADS) % VECTORS_D);
//! end
