// {X}_d: the subgroup's rows of the operand at {START}, as left factors.
//! unroll d DEPTHS
//! if EMULATE
let {X}_{d} = {START} + own * STRIDE_D + {2*d}u;
//! end
//! if COOPERATIVE
let {X}_{d} = coopLoadT<coop_mat{FRAGMENT}x{FRAGMENT}<f16, A>>(&halves[({START} + own * STRIDE_D + {2*d}u) * UNIT], STRIDE_D * UNIT);
//! end
//! if !EMULATE && !COOPERATIVE
let {X}_{d} = subgroupMatrixLoad<Left, row_major>(&halves, ({START} + own * STRIDE_D + {2*d}u) * UNIT, STRIDE_D * UNIT);
//! end
//! end
