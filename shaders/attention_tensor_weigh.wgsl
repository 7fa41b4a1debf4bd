// {SET}_d += the subgroup's rows of halves at {P} times the columns' vectors at {Y}.
//! unroll j SPANS
{
    let at = {P} + own * STRIDE_P + {2*j}u;
//! if COOPERATIVE
    let weights = coopLoadT<coop_mat{FRAGMENT}x{FRAGMENT}<f16, A>>(&halves[at * UNIT], STRIDE_P * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE
    let weights = subgroupMatrixLoad<Left, row_major>(&halves, at * UNIT, STRIDE_P * UNIT);
//! end
//! unroll d DEPTHS
    let from_{d} = {Y} + {j}u * FRAGMENT * STRIDE_D + {2*d}u;
//! if EMULATE
    emulated_product(&{SET}_{d}, at, STRIDE_P, from_{d}, STRIDE_D, false, within);
//! end
//! if COOPERATIVE
    {SET}_{d} = coopMultiplyAdd(weights, coopLoadT<coop_mat{FRAGMENT}x{FRAGMENT}<f16, B>>(&halves[from_{d} * UNIT], STRIDE_D * UNIT), {SET}_{d});
//! end
//! if !EMULATE && !COOPERATIVE
    {SET}_{d} = subgroupMatrixMultiplyAccumulate(weights, subgroupMatrixLoad<Right, row_major>(&halves, from_{d} * UNIT, STRIDE_D * UNIT), {SET}_{d});
//! end
//! end
}
//! end
