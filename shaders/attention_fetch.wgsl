// PREFETCH: the thread's share of COLS rows of {FROM} into registers {SET}_n, ahead of their use.
//! if PREFETCH
//! unroll n LOADS_Y
{SET}_{n} = {FROM}_vector({FIRST}, {STEP}, {ROW} + (lane + {n}u * THREADS) / WIDE, (lane + {n}u * THREADS) % WIDE * 4u);
//! end
//! end
