// The products of the subgroup's rows {X} with the columns at {Y}, into floats at {TO}.
{
//! unroll j SPANS
//! if COOPERATIVE
    var s_{j} = coop_mat{FRAGMENT}x{FRAGMENT}<f32, C>();
//! else
    var s_{j} = Result();
//! end
//! unroll d DEPTHS
    {
        let at = {Y} + {j}u * FRAGMENT * STRIDE_D + {2*d}u;
//! if EMULATE
        emulated_product(&s_{j}, {X}_{d}, STRIDE_D, at, STRIDE_D, true, within);
//! end
//! if COOPERATIVE
        s_{j} = coopMultiplyAdd({X}_{d}, coopLoad<coop_mat{FRAGMENT}x{FRAGMENT}<f16, B>>(&halves[at * UNIT], STRIDE_D * UNIT), s_{j});
//! end
//! if !EMULATE && !COOPERATIVE
        s_{j} = subgroupMatrixMultiplyAccumulate({X}_{d}, subgroupMatrixLoad<Right, col_major>(&halves, at * UNIT, STRIDE_D * UNIT), s_{j});
//! end
    }
//! end
//! end
//! unroll j SPANS
    {
        let to = {TO} + own * STRIDE_S + {j}u * FRAGMENT / 4u;
//! if EMULATE
        emulated_store(s_{j}, to, STRIDE_S, within);
//! end
//! if COOPERATIVE
        coopStoreT(s_{j}, &floats[to * UNIT_S], STRIDE_S * UNIT_S);
//! end
//! if !EMULATE && !COOPERATIVE
        subgroupMatrixStore<row_major>(&floats, to * UNIT_S, s_{j}, STRIDE_S * UNIT_S);
//! end
    }
//! end
}
